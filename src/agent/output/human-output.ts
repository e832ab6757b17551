import { systemClock } from "../../async/clock.ts";
import { userMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import type { AgentNotification, ThreadItem } from "../agent-notification.ts";
import { addUsage, totalTokens } from "../token-usage.ts";
import type { TurnCompletedEvent } from "../turn-completion.ts";
import type { StyledText } from "./ansi-style.ts";
import { type LineSink, LineWriter } from "./line-writer.ts";
import type { RunOutput, RunTurnResult } from "./run-output.ts";
import { StatusLine } from "./status-line.ts";

export interface HumanOutputOptions {
  stdout: LineSink;
  stderr: LineSink;
  /** Lines before the first event: directory, model, settings, prompt. */
  banner: readonly string[];
  /** Whether the status is overwritten in place. Default: only if stderr is a terminal. */
  progressInPlace?: boolean | undefined;
  /** Whether stderr is colored; the final message on stdout never is. Default: false. */
  color?: boolean | undefined;
}

/** Interval of progress lines if the status is not overwritten in place. */
const PROGRESS_LINE_INTERVAL_MS = 5_000;

/** Output for users: all events on stderr, and only the final message on stdout, so that it can be piped. */
export class HumanOutput implements RunOutput {
  #options: HumanOutputOptions;
  #status: StatusLine;
  #stdout: LineWriter;
  #progressAtMs = systemClock.monotonic();

  constructor(options: HumanOutputOptions) {
    this.#options = options;
    this.#status = new StatusLine(options.stderr, {
      inPlace: options.progressInPlace,
      color: options.color,
    });
    this.#stdout = new LineWriter(options.stdout);
  }

  notification(notification: AgentNotification): void {
    switch (notification.method) {
      case "thread/started":
        for (const line of this.#options.banner) this.#status.line(...bannerLine(line));
        return;
      case "item/started":
        if (notification.item.type === "commandExecution")
          this.#status.line(HEADINGS.exec, " ", { text: notification.item.command, style: "strong" });
        return;
      case "item/completed":
        for (const line of itemLines(notification.item)) this.#status.line(...line);
        return;
      case "error":
        if (notification.willRetry) this.warning(notification.message);
        else this.failure(notification.message);
        return;
      case "warning":
        this.warning(notification.message);
        return;
      case "tool/event": {
        const { line, status } = notification.event;
        if (line !== undefined) this.#status.line(line);
        if (status !== undefined) this.#progress(status);
        return;
      }
      default:
      // Not shown.
    }
  }

  /** Overwrites the status in place, or prints a line per interval. */
  #progress(status: string): void {
    if (this.#status.inPlace) {
      this.#status.status(status);
      return;
    }
    const now = systemClock.monotonic();
    if (now - this.#progressAtMs < PROGRESS_LINE_INTERVAL_MS) return;
    this.#progressAtMs = now;
    this.#status.line(status);
  }

  turnCompleted(event: TurnCompletedEvent, end: RunTurnResult): void {
    this.#status.clear();
    if (event.msg.type === "turnAborted") this.#status.line({ text: "turn interrupted", style: "warning" });
    const total = end.subagentsUsage ? addUsage(end.usage, end.subagentsUsage) : end.usage;
    this.#status.line({ text: "tokens used:", style: "faint" }, ` ${totalTokens(total)}`);
    // On a terminal, stderr has already shown the message.
    const shown = this.#options.stdout.isTTY === true && this.#options.stderr.isTTY === true;
    if (event.msg.type === "turnComplete" && !end.error && end.lastMessage !== null && !shown) {
      // A file or program gets the message unchanged.
      this.#stdout.line(this.#options.stdout.isTTY === true ? printableText(end.lastMessage) : end.lastMessage);
    }
  }

  warning(message: string): void {
    this.#status.line({ text: "warning:", style: "warning" }, ` ${userMessage(message)}`);
  }

  failure(message: string): void {
    this.#status.line({ text: "error:", style: "bad" }, ` ${userMessage(message)}`);
  }

  whenDrained(): Promise<void> {
    return this.#stdout.drained();
  }

  close(): void {
    this.#status.clear();
  }
}

type Line = readonly (string | StyledText)[];

const HEADINGS = {
  user: { text: "user", style: "heading" },
  exec: { text: "exec", style: "heading" },
  agent: { text: "agent", style: "heading" },
  thinking: { text: "thinking", style: "heading" },
} as const satisfies Record<string, StyledText>;

/** Formats `name: value` lines and the heading of the prompt; other lines stay unchanged. */
function bannerLine(line: string): Line {
  if (line === HEADINGS.user.text) return [HEADINGS.user];
  const [, name, value] = /^(\w+:)( .*)$/.exec(line) ?? [];
  return name === undefined || value === undefined ? [line] : [{ text: name, style: "strong" }, value];
}

/** Maximum output lines shown for a command; the complete output is for the model. */
const MAX_SHOWN_LINES = 20;

function itemLines(item: ThreadItem): Line[] {
  switch (item.type) {
    case "agentMessage":
      return item.text === "" ? [] : [[HEADINGS.agent], [item.text]];
    case "reasoning":
      return [[HEADINGS.thinking], [{ text: item.text, style: "faint" }]];
    case "commandExecution": {
      // Without an exit code the output is the error of the start.
      const lines = (item.exitCode === null ? userMessage(item.output) : item.output).split("\n");
      const shown = lines.slice(0, MAX_SHOWN_LINES);
      if (lines.length > shown.length) shown.push(`… ${lines.length - shown.length} more lines`);
      const end = item.exitCode === null ? item.status : `exited ${item.exitCode}`;
      const style = item.status === "completed" ? "good" : "bad";
      return [
        [`${item.command} `, { text: end, style }],
        ...shown.map((line): Line => [{ text: line, style: "faint" }]),
      ];
    }
    case "toolCall": {
      const style = item.status === "failed" ? "bad" : "good";
      const failure: Line[] = item.status === "failed" ? [[item.output]] : [];
      return [[`tool ${item.tool} `, { text: item.status, style }], ...failure];
    }
  }
}
