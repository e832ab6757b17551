import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { signalName, signalNumber } from "../../src/local/signals.ts";
import { RequestError } from "../../src/protocol/errors.ts";

describe("signal names", () => {
  it("are the system's, with real-time signals counted from the first", () => {
    assert.deepEqual([1, 2, 9, 15, 6, 34, 37, 64].map(signalName), [
      "SIGHUP",
      "SIGINT",
      "SIGKILL",
      "SIGTERM",
      "SIGABRT",
      "SIGRTMIN",
      "SIGRTMIN+3",
      "SIGRTMIN+30",
    ]);
    assert.equal(signalName(33), "SIG33");
  });

  it("are understood with and without SIG, and as the wire's word", () => {
    assert.deepEqual(
      ["interrupt", "SIGTERM", "TERM", "SIGRTMIN", "SIGRTMIN+2", "RTMAX-1"].map(signalNumber),
      [2, 15, 15, 34, 36, 63],
    );
  });

  it("are turned into numbers and back for every signal", () => {
    for (const number of [...Array(31).keys()].map((at) => at + 1).concat([34, 40, 64]))
      assert.equal(signalNumber(signalName(number)), number);
  });

  it("that do not exist are invalid params, and the error says what would be right", () => {
    for (const name of ["", "SIGNOPE", "9", "SIGRTMIN+31", "SIGRTMIN-1", "sigterm"])
      assert.throws(
        () => signalNumber(name),
        (error) =>
          error instanceof RequestError && error.code === -32602 && error.message.includes(`\`${name}\``),
      );
  });
});
