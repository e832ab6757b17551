import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { WriteWindow } from "../../../src/client/process/write-window.ts";
import { MAX_WRITE_IDS } from "../../../src/exec/backend/input-limits.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";

const MIB = 1024 * 1024;

/** Runs writes that the test resolves or rejects. */
class Writes {
  readonly window = new WriteWindow();
  readonly started: number[] = [];
  readonly #pending: PromiseWithResolvers<string>[] = [];

  run(bytes: number): Promise<string> {
    const index = this.#pending.push(Promise.withResolvers<string>()) - 1;
    return this.window.run(bytes, () => {
      this.started.push(index);
      return this.#at(index).promise;
    });
  }

  resolve(index: number): void {
    this.#at(index).resolve(`result ${index}`);
  }

  reject(index: number): void {
    this.#at(index).reject(new Error(`error ${index}`));
  }

  #at(index: number): PromiseWithResolvers<string> {
    const pending = this.#pending[index];
    assert.ok(pending);
    return pending;
  }
}

describe("WriteWindow", () => {
  test("returns the outcome of each write, also after a wait for capacity", async () => {
    const writes = new Writes();
    const first = writes.run(4 * MIB);
    const second = writes.run(1);
    const third = writes.run(1);
    writes.resolve(0);
    assert.equal(await first, "result 0");
    await flushEventLoop();
    writes.resolve(1);
    assert.equal(await second, "result 1");
    const failure = assert.rejects(third, /error 2/);
    writes.reject(2);
    await failure;
  });

  test("has at most 4 MiB in flight", async () => {
    const writes = new Writes();
    void writes.run(4 * MIB - 2);
    void writes.run(1);
    void writes.run(1);
    void writes.run(1);
    assert.deepEqual(writes.started, [0, 1, 2]);
    writes.resolve(1);
    await flushEventLoop();
    assert.deepEqual(writes.started, [0, 1, 2, 3]);
  });

  test("runs a write of more than 4 MiB alone", async () => {
    const writes = new Writes();
    void writes.run(5 * MIB);
    void writes.run(5 * MIB);
    assert.deepEqual(writes.started, [0]);
    writes.resolve(0);
    await flushEventLoop();
    assert.deepEqual(writes.started, [0, 1]);
  });

  test("has at most a quarter of the remembered write ids in flight", async () => {
    const writes = new Writes();
    const most = MAX_WRITE_IDS / 4;
    for (let count = 0; count < most + 2; count++) void writes.run(0);
    assert.equal(writes.started.length, most);
    writes.resolve(0);
    await flushEventLoop();
    assert.equal(writes.started.length, most + 1);
    writes.resolve(1);
    await flushEventLoop();
    assert.equal(writes.started.length, most + 2);
  });

  test("keeps the order: a small write waits behind a large one", async () => {
    const writes = new Writes();
    void writes.run(3 * MIB);
    void writes.run(2 * MIB);
    void writes.run(1);
    assert.deepEqual(writes.started, [0]);
    writes.resolve(0);
    await flushEventLoop();
    assert.deepEqual(writes.started, [0, 1, 2]);
  });

  test("frees the capacity of a failed write", async () => {
    const writes = new Writes();
    const failed = assert.rejects(writes.run(4 * MIB), /error 0/);
    void writes.run(4 * MIB);
    writes.reject(0);
    await failed;
    await flushEventLoop();
    assert.deepEqual(writes.started, [0, 1]);
  });
});
