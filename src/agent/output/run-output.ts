import type { AgentNotification } from "../agent-notification.ts";
import type { TokenUsage } from "../token-usage.ts";
import type { TurnCompletedEvent } from "../turn-completion.ts";

/** Receives the events of a run: prints text for users or JSON for programs. */
export interface RunOutput {
  notification(notification: AgentNotification): void;
  turnCompleted(event: TurnCompletedEvent, end: RunTurnResult): void;
  /** A warning that belongs to no turn. */
  warning(message: string): void;
  /** The run cannot continue or start. */
  failure(message: string): void;
  /** Resolves when the reader has accepted all output. The event queue fills up meanwhile. */
  whenDrained(): Promise<void>;
  /** Removes temporary output such as the status line. */
  close(): void;
}

export interface RunTurnResult {
  error: { message: string } | null;
  lastMessage: string | null;
  /** Usage of the agent, and of the workers it started. */
  usage: TokenUsage;
  subagentsUsage: TokenUsage | null;
}
