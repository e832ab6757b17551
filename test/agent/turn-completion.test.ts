import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentNotification, TurnStatus } from "../../src/agent/agent-notification.ts";
import { decodeTurnCompleted } from "../../src/agent/turn-completion.ts";

const turnCompleted = (status: TurnStatus, message?: string): AgentNotification => ({
  method: "turn/completed",
  threadId: "thread-a",
  turn: { id: "turn-a", items: [], status, error: message === undefined ? null : { message } },
});

test("completions of other threads and turns are ignored", () => {
  assert.equal(decodeTurnCompleted(turnCompleted("completed"), "thread-b", "turn-a"), null);
  assert.equal(decodeTurnCompleted(turnCompleted("completed"), "thread-a", "turn-b"), null);
});

test("completed and failed turns are decoded", () => {
  assert.deepEqual(decodeTurnCompleted(turnCompleted("completed"), "thread-a", "turn-a"), {
    event: { id: "", msg: { type: "turnComplete", turnId: "turn-a", lastAgentMessage: null } },
    terminalError: false,
  });
  assert.deepEqual(decodeTurnCompleted(turnCompleted("failed", "synthetic"), "thread-a", "turn-a"), {
    event: { id: "", msg: { type: "turnComplete", turnId: "turn-a", lastAgentMessage: null } },
    terminalError: true,
  });
});

test("interrupted turns are decoded", () => {
  assert.deepEqual(decodeTurnCompleted(turnCompleted("interrupted"), "thread-a", "turn-a"), {
    event: { id: "", msg: { type: "turnAborted", turnId: "turn-a", reason: "interrupted" } },
    terminalError: false,
  });
});

test("a turn in progress and every other kind of notification decode to nothing", () => {
  assert.equal(decodeTurnCompleted(turnCompleted("inProgress"), "thread-a", "turn-a"), null);
  const others: AgentNotification[] = [
    { method: "thread/started", threadId: "thread-a" },
    { method: "thread/closed", threadId: "thread-a" },
    { method: "turn/started", threadId: "thread-a", turnId: "turn-a" },
    { method: "error", threadId: "thread-a", turnId: "turn-a", message: "x", willRetry: false },
    { method: "warning", threadId: null, message: "x" },
  ];
  for (const other of others) assert.equal(decodeTurnCompleted(other, "thread-a", "turn-a"), null);
});
