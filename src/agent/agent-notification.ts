import type { TokenUsage } from "./token-usage.ts";

/** Something that was said or done in a turn, as a person or a program following it sees it. */
export type ThreadItem =
  | { type: "agentMessage"; id: string; text: string }
  | { type: "reasoning"; id: string; text: string }
  | {
      type: "commandExecution";
      id: string;
      /** The line the model wrote. */
      command: string;
      /** What runs it. */
      argv: readonly string[];
      output: string;
      exitCode: number | null;
      status: ItemProgress;
    }
  | { type: "toolCall"; id: string; tool: string; arguments: unknown; output: string; status: ItemProgress };

/** `declined`: it was not allowed to run. */
export type ItemProgress = "inProgress" | "completed" | "failed" | "declined";

export type TurnStatus = "inProgress" | "completed" | "failed" | "interrupted";

export interface Turn {
  id: string;
  /** Everything that happened in it, so that it need not be asked for after the end. */
  items: readonly ThreadItem[];
  status: TurnStatus;
  error: { message: string } | null;
}

/**
 * What an agent tells while it works. Each names its thread, and its turn where it has one, because the agents of a job
 * speak on the same stream as the one that started them.
 */
export type Notification =
  | { method: "thread/started"; threadId: string }
  | { method: "thread/closed"; threadId: string }
  | { method: "turn/started"; threadId: string; turnId: string }
  | { method: "turn/completed"; threadId: string; turn: Turn }
  | {
      method: "item/started" | "item/updated" | "item/completed";
      threadId: string;
      turnId: string;
      item: ThreadItem;
    }
  | { method: "thread/tokenUsage"; threadId: string; turnId: string; usage: TokenUsage }
  /** `willRetry`: the agent goes on by itself, and the message says how often it has tried. */
  | { method: "error"; threadId: string; turnId: string; message: string; willRetry: boolean }
  /** Without a thread it concerns the whole run. */
  | { method: "warning"; threadId: string | null; message: string }
  /** News of a tool that has its own kinds of events. */
  | { method: "tool/event"; threadId: string; turnId: string; event: ToolEvent };

export interface ToolEvent {
  /** The event as programs read it: one JSON object as text, whose `type` names its kind. */
  json: string;
  /** A line for people, or a status that takes the place of the one before; neither: nothing is shown. */
  line?: string;
  status?: string;
}
