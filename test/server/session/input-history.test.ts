import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type InputActor, InputHistory, type InputWrite } from "../../../src/server/session/input-history.ts";

const OWNER: InputActor = { role: "owner", session: 1, principal: "local", client: "model" };

function add(history: InputHistory, write: Partial<InputWrite> = {}, actor: Partial<InputActor> = {}): void {
  history.add({ ...OWNER, ...actor }, { atMs: 0, bytes: 1, echo: true, chunk: null, ...write });
}

/** Returns the number of entries for a write at 0 ms and the given second write. */
function entriesWith(write: Partial<InputWrite>, actor: Partial<InputActor> = {}): number {
  const history = new InputHistory();
  add(history);
  add(history, write, actor);
  return history.entries().inputs.length;
}

describe("InputHistory", () => {
  test("merges writes of one actor within a second of the first", () => {
    const history = new InputHistory();
    add(history, { atMs: 500, bytes: 3 });
    add(history, { atMs: 900, bytes: 4 });
    add(history, { atMs: 1499, bytes: 5 });
    assert.deepEqual(history.entries(), {
      inputs: [{ ...OWNER, fromMs: 500, toMs: 1499, bytes: 12, writes: 3, echo: true, chunk: undefined }],
      omitted: 0,
    });
    add(history, { atMs: 1500 });
    assert.equal(history.entries().inputs.length, 2);
  });

  test("starts a new entry for another session, role, client or echo", () => {
    assert.equal(entriesWith({}), 1);
    assert.equal(entriesWith({}, { session: 2 }), 2);
    assert.equal(entriesWith({}, { role: "driver" }), 2);
    assert.equal(entriesWith({}, { client: "console" }), 2);
    assert.equal(entriesWith({ echo: false }), 2);
  });

  test("compares a write with the last entry only", () => {
    const history = new InputHistory();
    add(history);
    add(history, {}, { session: 2 });
    add(history, {}, { session: 2 });
    add(history);
    assert.deepEqual(
      history.entries().inputs.map(({ session, writes }) => [session, writes]),
      [
        [1, 1],
        [2, 2],
        [1, 1],
      ],
    );
  });

  test("does not merge recorded input with the write before or after it", () => {
    const history = new InputHistory();
    for (const chunk of [null, new Uint8Array(1), null]) add(history, { chunk });
    assert.equal(history.entries().inputs.length, 3);
  });

  test("removes the oldest entries above 1,000", () => {
    const history = new InputHistory();
    for (let n = 0; n < 1000; n++) add(history, { atMs: n * 1000 });
    assert.equal(history.entries().omitted, 0);
    add(history, { atMs: 1_000_000 });
    const { inputs, omitted } = history.entries();
    assert.deepEqual([inputs.length, inputs[0]?.fromMs, omitted], [1000, 1000, 1]);
  });

  test("removes the oldest entries above 256 KiB of recorded input", () => {
    const history = new InputHistory();
    for (let n = 0; n < 4; n++) add(history, { atMs: n, chunk: new Uint8Array(64 * 1024) });
    assert.equal(history.entries().omitted, 0);
    add(history, { atMs: 4, chunk: new Uint8Array(1) });
    assert.deepEqual(
      [history.entries().inputs.map(({ fromMs }) => fromMs), history.entries().omitted],
      [[1, 2, 3, 4], 1],
    );
    // The removed entry no longer counts.
    add(history, { atMs: 5, chunk: new Uint8Array(64 * 1024 - 1) });
    assert.equal(history.entries().omitted, 1);
  });
});
