import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { toCallError } from "../../src/exec/call-error.ts";
import {
  isAccessEnd,
  isProcessExists,
  isProcessStarting,
  isTakeoverClose,
  isTakeoverError,
  isUnknownFileHandle,
  isUnknownHandle,
  isUnknownMethod,
  isUnknownProcess,
  parseOsErrorNumber,
  parseProcessFailure,
  parseStartFailure,
} from "../../src/exec/compat.ts";
import {
  DisconnectedError,
  ErrorCode,
  internalError,
  invalidRequest,
  RequestError,
} from "../../src/protocol/errors.ts";

import { type ErrorReason, ExecServerError } from "../../src/protocol/exec-server-error.ts";

describe("recognition of server errors by their text", () => {
  test("recognizes the states of a process only in invalid-request errors", () => {
    assert.equal(isProcessExists(invalidRequest("process p already exists"), "p"), true);
    assert.equal(isProcessExists(invalidRequest("process q already exists"), "p"), false);
    assert.equal(isProcessExists(internalError("process p already exists"), "p"), false);
    assert.equal(isProcessStarting(invalidRequest("process id p is starting")), true);
    assert.equal(isProcessStarting(internalError("process id p is starting")), false);
    assert.equal(isProcessStarting(new Error("process id p is starting")), false);
    assert.equal(isProcessStarting(invalidRequest("process id p is starting up")), false);
  });

  test("recognizes an unknown process", () => {
    assert.equal(isUnknownProcess(invalidRequest("unknown process id p"), "p"), true);
    assert.equal(isUnknownProcess(invalidRequest("unknown process id p2"), "p"), false);
    assert.equal(isUnknownProcess(new Error("unknown process id p"), "p"), false);
  });

  test("recognizes unknown methods by code or text", () => {
    assert.equal(isUnknownMethod(new RequestError(-32601, "no")), true);
    assert.equal(isUnknownMethod(invalidRequest("unknown method: x")), true);
    assert.equal(isUnknownMethod(new RequestError(ErrorCode.internal, "unknown method: x")), false);
    assert.equal(isUnknownMethod(invalidRequest("no")), false);
  });

  test("recognizes unknown file handles and sessions that were taken over", () => {
    assert.equal(isUnknownFileHandle(invalidRequest("unknown file handle h1")), true);
    assert.equal(isUnknownFileHandle(invalidRequest("no such file")), false);
    assert.equal(isTakeoverClose("session s was taken over by another connection"), true);
    assert.equal(isTakeoverClose(null), false);
    assert.equal(isTakeoverClose("bye"), false);
    assert.equal(isTakeoverError(invalidRequest("session s was taken over by another connection")), false);
  });

  test("recognizes the close reasons of a share link", () => {
    assert.equal(isAccessEnd("the share link has expired"), true);
    assert.equal(isAccessEnd("the share link was revoked"), true);
    assert.equal(isAccessEnd("the access was revoked"), true);
    assert.equal(isAccessEnd("bye"), false);
    assert.equal(isAccessEnd(null), false);
  });

  test("recognizes a missing and a non-executable program", () => {
    assert.equal(parseStartFailure("No such file or directory (os error 2)"), "notFound");
    assert.equal(parseStartFailure("No viable candidates found in PATH"), "notFound");
    assert.equal(parseStartFailure("Permission denied (os error 13)"), "notExecutable");
    assert.equal(parseStartFailure("server is shutting down"), null);
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

describe("recognition of server errors by their reason", () => {
  const withReason = (reason: ErrorReason) => invalidRequest("any text", { reason });

  test("recognizes each reason, whatever the text is", () => {
    assert.equal(isProcessExists(withReason("processExists"), "p"), true);
    assert.equal(isUnknownProcess(withReason("unknownProcess"), "p"), true);
    assert.equal(isUnknownHandle(withReason("unknownHandle")), true);
    assert.equal(isUnknownMethod(withReason("unknownMethod")), true);
    assert.equal(isUnknownFileHandle(withReason("unknownFileHandle")), true);
    assert.equal(isTakeoverError(withReason("sessionTakenOver")), true);
    assert.equal(isUnknownHandle(invalidRequest("unknown handle h")), false);
  });

  test("ignores the text of an error with another reason", () => {
    const error = invalidRequest("unknown process id p", { reason: "unknownMethod" });
    assert.equal(isUnknownProcess(error, "p"), false);
  });

  test("recognizes the reason in the error of a rejected call", () => {
    const called = toCallError(withReason("unknownFileHandle"), { method: "fs/readBlock" }, new Error());
    assert.ok(called instanceof ExecServerError);
    assert.equal(isUnknownFileHandle(called), true);
  });
});
