import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  isProcessExists,
  isProcessStarting,
  isSessionTakenOver,
  isUnknownFileHandle,
  isUnknownMethod,
  isUnknownProcess,
  parseOsErrorNumber,
  parseProcessFailure,
} from "../../src/exec/compat.ts";
import {
  DisconnectedError,
  ErrorCode,
  internalError,
  invalidRequest,
  RequestError,
} from "../../src/protocol/errors.ts";

describe("recognition of server errors by their text", () => {
  test("recognizes the states of a process only in invalid-request errors", () => {
    assert.equal(isProcessExists(invalidRequest("process p already exists"), "p"), true);
    assert.equal(isProcessExists(invalidRequest("process q already exists"), "p"), false);
    assert.equal(isProcessExists(internalError("process p already exists"), "p"), false);
    assert.equal(isProcessStarting(invalidRequest("process id p is starting")), true);
    assert.equal(isProcessStarting(internalError("process id p is starting")), false);
    assert.equal(isProcessStarting(new Error("process id p is starting")), false);
  });

  test("recognizes an unknown process with or without the generation of the server", () => {
    assert.equal(isUnknownProcess(invalidRequest("unknown process id p"), "p"), true);
    assert.equal(isUnknownProcess(invalidRequest("unknown process id p; generation 1-2"), "p"), true);
    assert.equal(isUnknownProcess(invalidRequest("unknown process id p2"), "p"), false);
  });

  test("recognizes unknown methods by code or text", () => {
    assert.equal(isUnknownMethod(new RequestError(-32601, "no")), true);
    assert.equal(isUnknownMethod(invalidRequest("unknown method: x")), true);
    assert.equal(isUnknownMethod(new RequestError(ErrorCode.internal, "unknown method: x")), false);
  });

  test("recognizes unknown file handles and sessions that were taken over", () => {
    assert.equal(isUnknownFileHandle(invalidRequest("unknown file handle h1")), true);
    assert.equal(isUnknownFileHandle(invalidRequest("no such file")), false);
    assert.equal(isSessionTakenOver("session s was taken over by another connection"), true);
    assert.equal(isSessionTakenOver(null), false);
  });

  test("reads the errno from the text of a system error", () => {
    assert.equal(parseOsErrorNumber("No such file or directory (os error 2)"), 2);
    assert.equal(parseOsErrorNumber("error 2"), null);
  });

  test("turns a failure text into a DisconnectedError with the same text, or an error with code FAILED", () => {
    for (const text of ["exec-server transport disconnected", "exec-server transport disconnected: gone"]) {
      const failure = parseProcessFailure(text);
      assert.ok(failure instanceof DisconnectedError);
      assert.equal(failure.message, text);
    }
    const { message, code } = parseProcessFailure("its reader broke");
    assert.deepEqual([message, code], ["its reader broke", "FAILED"]);
  });
});
