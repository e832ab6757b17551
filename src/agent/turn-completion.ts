import type { AgentNotification } from "./agent-notification.ts";

/** The end of a turn as an event of the run, independent of the notification that reported it. */
export interface TurnCompletedEvent {
  /** Always empty, because the event responds to no request. */
  id: "";
  msg:
    | { type: "turnComplete"; turnId: string; lastAgentMessage: null }
    | { type: "turnAborted"; turnId: string; reason: "interrupted" };
}

/**
 * Decodes the notification that ends a run: the completion of this turn of this thread. Returns null for all others,
 * including completions of other threads, whose agents may end while the run continues.
 */
export function decodeTurnCompleted(
  notification: AgentNotification,
  primaryThreadId: string,
  turnId: string,
): { event: TurnCompletedEvent; terminalError: boolean } | null {
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
