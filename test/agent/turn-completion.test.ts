import assert from "node:assert/strict";
import { test } from "node:test";
import type { Notification, TurnStatus } from "../../src/agent/agent-notification.ts";
import { decodeTurnCompleted } from "../../src/agent/turn-completion.ts";

const turnCompleted = (status: TurnStatus, message?: string): Notification => ({
  method: "turn/completed",
  threadId: "thread-a",
  turn: { id: "turn-a", items: [], status, error: message === undefined ? null : { message } },
});

test("decode_turn_completed_notification_ignores_other_threads_and_turns", () => {
  assert.equal(decodeTurnCompleted(turnCompleted("completed"), "thread-b", "turn-a"), null);
  assert.equal(decodeTurnCompleted(turnCompleted("completed"), "thread-a", "turn-b"), null);
});

test("decode_turn_completed_notification_maps_completed_and_failed_turns", () => {
  assert.deepEqual(decodeTurnCompleted(turnCompleted("completed"), "thread-a", "turn-a"), {
    event: { id: "", msg: { type: "turnComplete", turnId: "turn-a", lastAgentMessage: null } },
    terminalError: false,
  });
  assert.deepEqual(decodeTurnCompleted(turnCompleted("failed", "synthetic"), "thread-a", "turn-a"), {
    event: { id: "", msg: { type: "turnComplete", turnId: "turn-a", lastAgentMessage: null } },
    terminalError: true,
  });
});

test("decode_turn_completed_notification_maps_interrupted_turns", () => {
  assert.deepEqual(decodeTurnCompleted(turnCompleted("interrupted"), "thread-a", "turn-a"), {
    event: { id: "", msg: { type: "turnAborted", turnId: "turn-a", reason: "interrupted" } },
    terminalError: false,
  });
});

test("a turn in progress and every other kind of notification decode to nothing", () => {
  assert.equal(decodeTurnCompleted(turnCompleted("inProgress"), "thread-a", "turn-a"), null);
  const others: Notification[] = [
    { method: "thread/started", threadId: "thread-a" },
    { method: "thread/closed", threadId: "thread-a" },
    { method: "turn/started", threadId: "thread-a", turnId: "turn-a" },
    { method: "error", threadId: "thread-a", turnId: "turn-a", message: "x", willRetry: false },
    { method: "warning", threadId: null, message: "x" },
  ];
  for (const other of others) assert.equal(decodeTurnCompleted(other, "thread-a", "turn-a"), null);
});
