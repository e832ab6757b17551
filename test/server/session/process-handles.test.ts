import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ProcessHandles } from "../../../src/server/session/process-handles.ts";

/** Returns handles whose random bytes are 0, 1, 2, ..., and the sizes of the draws. */
function setup(nextByte = (at: number) => at) {
  const draws: number[] = [];
  let at = 0;
  const handles = new ProcessHandles<string>((count) => {
    draws.push(count);
    return Uint8Array.from({ length: count }, () => nextByte(at++));
  });
  return { handles, draws };
}

describe("ProcessHandles", () => {
  test("builds a handle from five bits of each of twelve random bytes", () => {
    const { handles } = setup();
    assert.equal(handles.allocate("one"), "abcdefghijkl");
    assert.equal(handles.allocate("two"), "mnopqrstuvwx");
    assert.equal(handles.allocate("three"), "yz234567abcd");
  });

  test("draws random bytes for 64 handles at once", () => {
    const { handles, draws } = setup();
    for (let n = 0; n < 64; n++) handles.generate();
    assert.deepEqual(draws, [768]);
    handles.generate();
    assert.deepEqual(draws, [768, 768]);
  });

  test("skips a handle that is in use", () => {
    const { handles } = setup((at) => (at < 24 ? at % 12 : at));
    assert.equal(handles.allocate("one"), "abcdefghijkl");
    assert.equal(handles.allocate("two"), "yz234567abcd");
    handles.reserve("efghijklmnop", "three");
    assert.equal(handles.generate(), "qrstuvwxyz23");
  });

  test("finds a process until its handle is released", () => {
    const { handles } = setup();
    const handle = handles.allocate("one");
    handles.reserve("earlier", "two");
    assert.deepEqual([handles.find(handle), handles.find("earlier"), handles.find("x")], ["one", "two", null]);
    handles.release(handle);
    assert.equal(handles.find(handle), null);
  });
});
