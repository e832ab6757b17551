import assert from "node:assert/strict";
import { test } from "node:test";
import { ProtocolError } from "../../../src/protocol/errors.ts";
import { ClientRequests } from "../../../src/server/rpc/client-requests.ts";

const never = new AbortController().signal;

test("ClientRequests settles responses in any order and ignores late ones", async () => {
  const requests = new ClientRequests();
  const ids: number[] = [];
  const first = requests.start((id) => ids.push(id), never);
  const second = requests.start((id) => ids.push(id), never);
  assert.deepEqual(ids, [1, 2]);
  requests.settle(2, { type: "response", result: "b" });
  requests.settle(1, { type: "error", message: "no" });
  assert.equal(await second, "b");
  await assert.rejects(first, /^Error: no$/);
  requests.settle(2, { type: "response", result: "late" });
});

test("ClientRequests throws a protocol error for the response to a request that was never sent", () => {
  const requests = new ClientRequests();
  for (const [id, type, text] of [
    [6, "response", "unexpected client response for request id Integer(6)"],
    [0, "response", "unexpected client response for request id Integer(0)"],
    ["x", "error", 'unexpected client error for request id String("x")'],
  ] as const) {
    const response = type === "error" ? { type, message: "no" } : { type, result: {} };
    assert.throws(
      () => requests.settle(id, response),
      (error) => error instanceof ProtocolError && error.message === text,
    );
  }
});

test("ClientRequests rejects the 257th open request, and accepts another one after a response", async () => {
  const requests = new ClientRequests();
  const open = Array.from({ length: 256 }, () => requests.start(() => undefined, never));
  await assert.rejects(
    requests.start(() => assert.fail("sent"), never),
    /more than 256 requests/,
  );
  requests.settle(1, { type: "response", result: 1 });
  assert.equal(await open[0], 1);
  const last = requests.start(() => undefined, never);
  requests.disconnected();
  for (const request of [...open.slice(1), last]) await assert.rejects(request, /the client is disconnected/);
  await assert.rejects(
    requests.start(() => undefined, never),
    /the client is disconnected/,
  );
});

test("an abort rejects an open request, and its response is ignored", async () => {
  const requests = new ClientRequests();
  const controller = new AbortController();
  const request = requests.start(() => undefined, controller.signal);
  controller.abort();
  await assert.rejects(request, /the request has ended/);
  requests.settle(1, { type: "response", result: 1 });
});
