import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { signalName, signalNumber } from "../../src/local/signals.ts";
import { RequestError } from "../../src/protocol/errors.ts";

describe("signals", () => {
  test("names signals like the system and counts real-time signals from SIGRTMIN", () => {
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

  test("parses names with and without SIG, and `interrupt`", () => {
    assert.deepEqual(
      ["interrupt", "SIGTERM", "TERM", "SIGRTMIN", "SIGRTMIN+2", "RTMAX-1"].map(signalNumber),
      [2, 15, 15, 34, 36, 63],
    );
  });

  test("converts every signal to a name and back", () => {
    for (const number of [...Array(31).keys()].map((at) => at + 1).concat([34, 40, 64]))
      assert.equal(signalNumber(signalName(number)), number);
  });

  test("rejects an unknown name as invalid params and quotes it", () => {
    for (const name of ["", "SIGNOPE", "9", "SIGRTMIN+31", "SIGRTMIN-1", "sigterm"])
      assert.throws(
        () => signalNumber(name),
        (error) => error instanceof RequestError && error.code === -32602 && error.message.includes(`\`${name}\``),
      );
  });
});
