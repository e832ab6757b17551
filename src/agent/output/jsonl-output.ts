import { shellJoin } from "../../base/text/shell-join.ts";
import type { AgentNotification, ItemProgress, ThreadItem } from "../agent-notification.ts";
import { addUsage, usageFields } from "../token-usage.ts";
import type { TurnCompletedEvent } from "../turn-completion.ts";
import { type LineSink, LineWriter } from "./line-writer.ts";
import type { RunOutput, RunTurnResult } from "./run-output.ts";

/** The Responses API does not bill cache writes. The field exists for readers of Codex events. */
const NO_CACHE_WRITES = 0;

/** Output for programs: one JSON object per line on stdout. */
export class JsonlOutput implements RunOutput {
  #lines: LineWriter;
  #ids = new Map<string, string>();
  #items = 0;

  constructor(stdout: LineSink) {
    this.#lines = new LineWriter(stdout);
  }

  notification(notification: AgentNotification): void {
    switch (notification.method) {
      case "thread/started":
        this.#write({ type: "thread.started", thread_id: notification.threadId });
        return;
      case "turn/started":
        this.#write({ type: "turn.started" });
        return;
      case "item/started":
      case "item/updated":
      case "item/completed":
        this.#write({
          type: notification.method.replace("/", "."),
          item: { id: this.#toItemId(notification.item.id), ...itemFields(notification.item) },
        });
        return;
      case "error":
        this.#write({ type: "error", message: notification.message });
        return;
      case "warning":
        this.warning(notification.message);
        return;
      case "tool/event":
        this.#lines.line(notification.event.json);
        return;
      default:
      // Codex has no such event.
    }
  }

  turnCompleted(event: TurnCompletedEvent, end: RunTurnResult): void {
    if (event.msg.type !== "turnComplete") return;
    if (end.error) {
      this.#write({ type: "turn.failed", error: { message: end.error.message } });
      return;
    }
    const total = end.subagentsUsage ? addUsage(end.usage, end.subagentsUsage) : end.usage;
    this.#write({
      type: "turn.completed",
      usage: { ...usageFields(total), cache_write_input_tokens: NO_CACHE_WRITES },
      workers_usage: end.subagentsUsage ? usageFields(end.subagentsUsage) : undefined,
    });
  }

  warning(message: string): void {
    this.#write({ type: "item.completed", item: { id: this.#newId(), type: "error", message } });
  }

  failure(message: string): void {
    this.#write({ type: "error", message });
  }

  whenDrained(): Promise<void> {
    return this.#lines.drained();
  }

  close(): void {}

  #write(event: object): void {
    this.#lines.line(JSON.stringify(event));
  }

  #toItemId(id: string): string {
    const known = this.#ids.get(id);
    if (known) return known;
    const created = this.#newId();
    this.#ids.set(id, created);
    return created;
  }

  #newId(): string {
    return `item_${this.#items++}`;
  }
}

function itemFields(item: ThreadItem): object {
  switch (item.type) {
    case "agentMessage":
      return { type: "agent_message", text: item.text };
    case "reasoning":
      return { type: "reasoning", text: item.text };
    case "commandExecution":
      return {
        type: "command_execution",
        command: shellJoin(item.argv),
        aggregated_output: item.output,
        exit_code: item.exitCode,
        status: statusName(item.status),
      };
    case "toolCall":
      return {
        type: "tool_call",
        tool: item.tool,
        arguments: item.arguments,
        output: item.output,
        status: statusName(item.status),
      };
  }
}

function statusName(status: ItemProgress): string {
  return status === "inProgress" ? "in_progress" : status;
}
