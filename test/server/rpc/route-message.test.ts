import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Message } from "../../../src/protocol/envelope.ts";
import { ProtocolError } from "../../../src/protocol/errors.ts";
import { encodeNotification, encodeResponse } from "../../../src/protocol/message-text.ts";
import { methods, serverNotifications } from "../../../src/protocol/methods.ts";
import { routeMessage } from "../../../src/server/rpc/route-message.ts";

const request = (id: number, method: string, params: unknown): Message => ({
  type: "request",
  id,
  method,
  params,
});

function protocolError(message: Message): string {
  try {
    routeMessage(message);
  } catch (error) {
    assert.ok(error instanceof ProtocolError);
    return error.message;
  }
  assert.fail("it was routed");
}

describe("routeMessage", () => {
  test("routes initialize requests with typed params", () => {
    assert.deepEqual(routeMessage(request(1, "initialize", { clientName: "test-client" })), {
      type: "request",
      id: 1,
      method: "initialize",
      params: { clientName: "test-client" },
    });
  });

  test("rejects malformed exec params at once", () => {
    const routed = routeMessage(request(2, "command/exec", { sessionId: "proc-1" }));
    assert.ok(routed.type === "refused");
    assert.equal(routed.id, 2);
    assert.equal(routed.error.code, -32602);
  });

  test("routes initialized notifications", () => {
    const message: Message = { type: "notification", method: "initialized", params: {} };
    assert.deepEqual(routeMessage(message), { type: "initialized" });
  });

  test("round-trips typed notifications as JSON-RPC", () => {
    const { params } = serverNotifications["command/exec/exited"];
    const text = encodeNotification("command/exec/exited", params.encode({ sessionId: "proc-1", exitCode: 0 }));
    assert.equal(text, '{"method":"command/exec/exited","params":{"sessionId":"proc-1","exitCode":0}}');
  });

  test("round-trips typed responses as JSON-RPC", () => {
    const { result } = methods["command/exec"];
    assert.equal(encodeResponse(3, result.encode({ sessionId: "proc-1" })), '{"id":3,"result":{"sessionId":"proc-1"}}');
  });

  test("routes exec requests with typed params", () => {
    const cwd = process.cwd();
    const params = {
      sessionId: "proc-1",
      argv: ["bash", "-lc", "true"],
      cwd,
      env: {},
      tty: true,
      arg0: null,
    };
    const routed = routeMessage(request(4, "command/exec", params));
    assert.ok(routed.type === "request" && routed.method === "command/exec");
    assert.equal(routed.id, 4);
    assert.deepEqual(
      { ...routed.params, env: { ...routed.params.env } },
      {
        argv: ["bash", "-lc", "true"],
        cwd,
        env: {},
        tty: true,
      },
    );
  });

  test("rejects unknown request methods at once as invalid requests", () => {
    for (const method of ["process/unknown", "", "constructor", "__proto__"]) {
      const routed = routeMessage(request(5, method, {}));
      assert.ok(routed.type === "refused");
      assert.equal(routed.id, 5);
      assert.deepEqual([routed.error.code, routed.error.message], [-32600, `unknown method: ${method}`]);
    }
  });

  test("throws a protocol error for unexpected client notifications", () => {
    const message: Message = { type: "notification", method: "process/outputDelta", params: {} };
    assert.equal(protocolError(message), "unexpected notification method: process/outputDelta");
  });

  test("routes responses and errors of the client", () => {
    const response: Message = { type: "response", id: 6, result: {} };
    assert.deepEqual(routeMessage(response), { type: "clientResponse", id: 6, response });
    assert.deepEqual(routeMessage({ type: "error", id: "x", error: { code: 1, message: "no" } }), {
      type: "clientResponse",
      id: "x",
      response: { type: "error", message: "no" },
    });
  });

  test("throws a protocol error for an empty acknowledgement", () => {
    const message: Message = { type: "notification", method: "process/ack", params: { processId: "p" } };
    assert.equal(protocolError(message), "malformed process/ack: missing field `seq`");
  });

  test("checks the method before its params", () => {
    const routed = routeMessage(request(7, "process/nope", 5));
    assert.ok(routed.type === "refused" && routed.error.code === -32600);
  });
});
