import assert from "node:assert/strict";
import { closeSync, constants, mkdtempSync, openSync, readdirSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { describe, test } from "node:test";
import { discardPendingInput, LineReader } from "../../../src/tools/policy/line-reader.ts";
import { makePipe } from "../../support/servers/serve.ts";

function reader() {
  const input = new PassThrough();
  return { input, lines: new LineReader(input) };
}

/** Waits until a stream has delivered its pending events. */
const delivered = () => new Promise((resolve) => setImmediate(resolve));

describe("LineReader", () => {
  test("returns lines with either line ending, across chunks and split characters", async () => {
    const { input, lines } = reader();
    const bytes = Buffer.from("one\r\nzwö");
    input.write(bytes.subarray(0, -1));
    const first = lines.next();
    assert.equal(await first, "one");
    input.write(bytes.subarray(-1));
    input.write("lf\n");
    assert.equal(await lines.next(), "zwölf");
  });

  test("returns an incomplete last line, then null", async () => {
    const { input, lines } = reader();
    input.end("one\ntwo");
    assert.deepEqual([await lines.next(), await lines.next(), await lines.next()], ["one", "two", null]);
  });

  test("returns null after complete lines, and when the input closes or fails", async () => {
    const ended = reader();
    ended.input.end("one\n");
    assert.deepEqual([await ended.lines.next(), await ended.lines.next()], ["one", null]);
    const failed = reader();
    failed.input.destroy(new Error("the terminal hung up"));
    assert.equal(await failed.lines.next(), null);
    const closed = reader();
    closed.input.destroy();
    assert.equal(await closed.lines.next(), null);
  });

  test("returns null on abort and gives the line to the next call", async () => {
    const { input, lines } = reader();
    const controller = new AbortController();
    const waiting = lines.next(controller.signal);
    controller.abort();
    assert.equal(await waiting, null);
    input.write("late\n");
    assert.equal(await lines.next(), "late");
  });

  test("reads only while a caller waits", async () => {
    const { input, lines } = reader();
    assert.ok(input.isPaused());
    const waiting = lines.next();
    assert.ok(!input.isPaused());
    input.write("one\n");
    await waiting;
    assert.ok(input.isPaused());
  });

  test("discards unread lines, an incomplete line and unread bytes", async () => {
    const { input, lines } = reader();
    input.write("one\ntwo\nincompl");
    assert.equal(await lines.next(), "one");
    input.write("ete\nthree\n");
    lines.discard();
    input.write("four\n");
    assert.equal(await lines.next(), "four");
  });

  test("still reports the end after a discard", async () => {
    const { input, lines } = reader();
    input.end("one\n");
    assert.equal(await lines.next(), "one");
    await delivered();
    lines.discard();
    assert.equal(await lines.next(), null);
  });
});

describe("discardPendingInput", () => {
  /** A pipe in place of a terminal. It records the modes that are set. */
  function fakeTerminal() {
    const directory = mkdtempSync(join(tmpdir(), "procwire-input-"));
    const path = join(directory, "pipe");
    makePipe(path);
    const fd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
    const modes: boolean[] = [];
    const input = {
      destroyed: false,
      setRawMode(mode: boolean) {
        modes.push(mode);
        return this;
      },
    };
    return {
      ...{ path, fd, modes, input },
      [Symbol.dispose]: () => {
        closeSync(fd);
        rmSync(directory, { recursive: true });
      },
    };
  }
  test("reads all pending input in raw mode and restores line mode", () => {
    using terminal = fakeTerminal();
    writeSync(terminal.fd, "typed ahead".repeat(1000));
    const open = readdirSync("/proc/self/fd").length;
    discardPendingInput(terminal.input, terminal.path);
    assert.deepEqual(terminal.modes, [true, false]);
    const probe = openSync(terminal.path, constants.O_RDONLY | constants.O_NONBLOCK);
    assert.throws(() => readSync(probe, Buffer.alloc(1)), { code: "EAGAIN" });
    closeSync(probe);
    assert.equal(readdirSync("/proc/self/fd").length, open);
  });

  test("restores line mode and fails if the input cannot be read", () => {
    using terminal = fakeTerminal();
    assert.throws(() => discardPendingInput(terminal.input, tmpdir()), { code: "EISDIR" });
    assert.deepEqual(terminal.modes, [true, false]);
  });

  test("leaves a closed terminal alone", () => {
    using terminal = fakeTerminal();
    discardPendingInput({ ...terminal.input, destroyed: true }, "/nonexistent");
    assert.deepEqual(terminal.modes, []);
  });
});
