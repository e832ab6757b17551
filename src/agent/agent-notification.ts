import type { TokenUsage } from "./token-usage.ts";

/** One entry of a turn, as the run output shows it. */
export type ThreadItem =
  | { type: "agentMessage"; id: string; text: string }
  | { type: "reasoning"; id: string; text: string }
  | {
      type: "commandExecution";
      id: string;
      /** The command line that the model wrote. */
      command: string;
      /** The arguments that are executed. */
      argv: readonly string[];
      output: string;
      exitCode: number | null;
      status: ItemProgress;
    }
  | { type: "toolCall"; id: string; tool: string; arguments: unknown; output: string; status: ItemProgress };

/** `declined`: the approval policy did not allow the command. */
export type ItemProgress = "inProgress" | "completed" | "failed" | "declined";

export type TurnStatus = "inProgress" | "completed" | "failed" | "interrupted";

export interface TurnRecord {
  id: string;
  /** All items of the turn, so that a reader needs no request after the end. */
  items: readonly ThreadItem[];
  status: TurnStatus;
  error: { message: string } | null;
}

/**
 * A notification of an agent. Each names its thread, and its turn if it has one: the agents of a job notify on the
 * stream of the agent that started the job.
 */
export type AgentNotification =
  | { method: "thread/started"; threadId: string }
  | { method: "thread/closed"; threadId: string }
  | { method: "turn/started"; threadId: string; turnId: string }
  | { method: "turn/completed"; threadId: string; turn: TurnRecord }
  | {
      method: "item/started" | "item/updated" | "item/completed";
      threadId: string;
      turnId: string;
      item: ThreadItem;
    }
  | { method: "thread/tokenUsage"; threadId: string; turnId: string; usage: TokenUsage }
  /** `willRetry`: the agent retries. The message gives the number of retries so far. */
  | { method: "error"; threadId: string; turnId: string; message: string; willRetry: boolean }
  /** `threadId` is null if the warning concerns the whole run. */
  | { method: "warning"; threadId: string | null; message: string }
  /** An event of a tool that defines its own event types. */
  | { method: "tool/event"; threadId: string; turnId: string; event: ToolEvent };

export interface ToolEvent {
  /** The event as one line of JSON; its `type` names the event type. */
  json: string;
  /** A line of text, or a status that replaces the previous status. If both are absent, nothing is shown. */
  line?: string;
  status?: string;
}
