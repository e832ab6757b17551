import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { TimeoutError } from "../../src/async/deadline.ts";
import { errorCode, startDetails, toCallError, withCallErrors } from "../../src/exec/call-error.ts";
import { DisconnectedError, ErrorCode, ProtocolError, RequestError } from "../../src/protocol/errors.ts";
import { ExecServerError } from "../../src/protocol/exec-server-error.ts";

const request = (message: string, code: number = ErrorCode.internal) => new RequestError(code, message);

function convert(error: unknown, path?: string): ExecServerError {
  const converted = toCallError(error, { method: "fs/read", ...(path !== undefined && { path }) }, new Error("caller"));
  assert.ok(converted instanceof ExecServerError);
  return converted;
}

describe("withCallErrors", () => {
  test("returns the result of the call", async () => {
    assert.equal(await withCallErrors({}, async () => 5), 5);
  });

  test("rejects with an error that has the details, the cause and the frames of the caller", async () => {
    const cause = request("no memory");
    async function callHere() {
      await withCallErrors({ method: "process/start", argv: ["make"] }, () => Promise.reject(cause));
    }
    await assert.rejects(callHere(), (error) => {
      assert.ok(error instanceof ExecServerError);
      assert.deepEqual([error.message, error.code, error.rpcCode], ["no memory", "INTERNAL", -32603]);
      assert.deepEqual([error.method, error.argv, error.cause], ["process/start", ["make"], cause]);
      const [message, first] = error.stack?.split("\n") ?? [];
      assert.match(message ?? "", /^ExecServerError: no memory$/);
      assert.match(first ?? "", /callHere/);
      return true;
    });
  });

  test("rejects with the reason of an abort, and makes no call if it is aborted before", async () => {
    const reason = new Error("enough");
    const unexpected = () => assert.fail("the call was made");
    await assert.rejects(withCallErrors({}, unexpected, AbortSignal.abort(reason)), reason);
    const controller = new AbortController();
    const calling = withCallErrors({}, () => new Promise(() => undefined), controller.signal);
    controller.abort(reason);
    await assert.rejects(calling, reason);
  });

  test("checks the arguments before the signal and before the call", async () => {
    const unexpected = () => assert.fail("the call was made");
    const check = () => {
      throw new ExecServerError("invalid `x`", "EINVAL");
    };
    const calling = withCallErrors({ method: "fs/read" }, unexpected, AbortSignal.abort(), check);
    await assert.rejects(calling, { code: "EINVAL", method: "fs/read" });
  });
});

describe("toCallError", () => {
  test("does not change converted errors and values other than call failures", () => {
    const converted = new ExecServerError("text", "EINVAL", { method: "fs/stat" });
    const bug = new TypeError("bug");
    for (const error of [converted, bug, "text"]) assert.equal(toCallError(error, {}, new Error()), error);
  });

  test("adds the call to an error without a method, and keeps its code", () => {
    const error = convert(new ExecServerError("text", "FAILED", { rpcCode: -5 }));
    assert.deepEqual([error.code, error.method, error.rpcCode], ["FAILED", "fs/read", -5]);
    assert.equal(convert(new TimeoutError("the response", 5)).rpcCode, null);
    assert.equal(convert(new RequestError(-5, "x", { reason: "unknownHandle" })).reason, "unknownHandle");
    assert.equal(convert(new ExecServerError("x", "FAILED", { reason: "unknownHandle" })).reason, "unknownHandle");
  });

  test("keeps the class of a DisconnectedError", () => {
    const error = convert(new DisconnectedError("reset"));
    assert.ok(error instanceof DisconnectedError);
    assert.deepEqual([error.code, error.method], ["DISCONNECTED", "fs/read"]);
  });

  test("names the path of a system error only", () => {
    assert.equal(convert(request("x (os error 2)"), "/a").message, "no such file or directory: /a");
    assert.equal(convert(request("denied (os error 13)"), "/a").message, "denied (os error 13): /a");
    assert.equal(convert(request("denied (os error 13)")).message, "denied (os error 13)");
    assert.equal(convert(request("too large"), "/a").message, "too large");
  });

  test("shows a file URI as a native path, and a URI without one unchanged", () => {
    const shown = (path: string) => convert(request("denied (os error 13)"), path).message;
    assert.equal(shown("file:///a%20b"), "denied (os error 13): /a b");
    assert.equal(shown("file:///a%FF"), "denied (os error 13): file:///a%FF");
  });
});

test("startDetails has the command and directory of a start, also for invalid params", () => {
  const method = "process/start";
  assert.deepEqual(startDetails({ argv: ["x"], cwd: "/" }), { method, argv: ["x"], cwd: "/" });
  const invalid: unknown[] = [null, { argv: "x", cwd: 5 }];
  for (const params of invalid)
    assert.deepEqual(Reflect.apply(startDetails, null, [params]), { method, argv: undefined, cwd: undefined });
});

test("errorCode maps errors to codes, and other values to null", () => {
  const codes: [unknown, string | null][] = [
    [new ExecServerError("x", "ENDED"), "ENDED"],
    [new TimeoutError("x", 1), "TIMEOUT"],
    [new ProtocolError("x"), "PROTOCOL"],
    [request("x (os error 13)"), "EACCES"],
    [request("x (os error 9999)"), "INTERNAL"],
    [request("x", ErrorCode.notFound), "ENOENT"],
    [request("x", ErrorCode.invalidRequest), "EINVAL"],
    [request("x", ErrorCode.invalidParams), "EINVAL"],
    [request("x", ErrorCode.beingReplaced), "EAGAIN"],
    [request("x", ErrorCode.methodNotFound), "UNSUPPORTED"],
    [request("x"), "INTERNAL"],
    [new TypeError("x"), null],
  ];
  for (const [error, code] of codes) assert.equal(errorCode(error), code);
});
