import type { Notification } from "./agent-notification.ts";
import type { TokenUsage } from "./token-usage.ts";
import type { TurnEndEvent } from "./turn-completion.ts";

/** Where the news of a run goes: lines for people, or events for programs. */
export interface RunOutput {
  notification(notification: Notification): RunStatus;
  turnEnded(event: TurnEndEvent, end: TurnEnd): RunStatus;
  /** Something the user should know that belongs to no turn. */
  warning(message: string): void;
  /** The run cannot go on, or could not begin. */
  failure(message: string): void;
  /** Resolves when what was written has been taken; waiting here is what makes the event stream lag. */
  drained(): Promise<void>;
  /** Removes what only makes sense while the run lasts, such as a status line. */
  close(): void;
}

export interface TurnEnd {
  error: { message: string } | null;
  lastMessage: string | null;
  /** The agent's own tokens, and those of the workers it started. */
  usage: TokenUsage;
  subagentsUsage: TokenUsage | null;
}

/**
 * What a piece of news means for the run. `shutdown` does not say whose it was: agents of a job shut down while the run
 * goes on, so it never ends anything.
 */
export type RunStatus = "running" | "initiateShutdown" | "shutdown";
