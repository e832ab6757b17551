import type { Notification } from "./agent-notification.ts";

/** The end of a turn as the run's own event, the same whatever kind of notification told it. */
export interface TurnEndEvent {
  /** Always empty: the event answers no request. */
  id: "";
  msg:
    | { type: "turnComplete"; turnId: string; lastAgentMessage: null }
    | { type: "turnAborted"; turnId: string; reason: "interrupted" };
}

/**
 * Reads the one notification that may end a run: the completion of exactly this turn of exactly this thread. Null for
 * everything else, also for completions of other threads, whose agents come and go while the run goes on.
 */
export function decodeTurnCompleted(
  notification: Notification,
  primaryThreadId: string,
  turnId: string,
): { event: TurnEndEvent; terminalError: boolean } | null {
  if (notification.method !== "turn/completed") return null;
  const { threadId, turn } = notification;
  if (threadId !== primaryThreadId || turn.id !== turnId) return null;
  switch (turn.status) {
    case "completed":
    case "failed":
      return {
        event: { id: "", msg: { type: "turnComplete", turnId: turn.id, lastAgentMessage: null } },
        terminalError: turn.status === "failed",
      };
    case "interrupted":
      return {
        event: { id: "", msg: { type: "turnAborted", turnId: turn.id, reason: "interrupted" } },
        terminalError: false,
      };
    case "inProgress":
      return null;
  }
}
