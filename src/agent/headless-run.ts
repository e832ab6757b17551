import { withDeadline } from "../async/deadline.ts";
import { errorMessage } from "../base/error-message.ts";
import type { UnifiedExecEvent } from "../tools/sessions/exec-events.ts";
import type { Tool } from "../tools/tool.ts";
import type { AgentNotification } from "./agent-notification.ts";
import type { CallModel } from "./api/model-caller.ts";
import type { JsonObject } from "./api/response-events.ts";
import { BoundedEventQueue } from "./output/bounded-event-queue.ts";
import { followCommands } from "./output/command-items.ts";
import type { RunOutput } from "./output/run-output.ts";
import { addUsage, NO_USAGE, type TokenUsage, totalTokens } from "./token-usage.ts";
import { runTurn } from "./turn.ts";
import { decodeTurnCompleted } from "./turn-completion.ts";

/** The interface of a run for tools that send events or start subagents. */
export interface RunContext {
  threadId: string;
  turnId: string;
  /** Sends an event to the output of the run. A `required` event is never dropped. */
  notify(notification: AgentNotification, options?: { required?: boolean }): void;
  /** Adds the usage of subagents. */
  addSubagentsUsage(usage: TokenUsage): void;
}

export interface RunToolset {
  tools: Tool[];
  /** Returns the events of the commands that the tools start from now on. */
  events?: () => AsyncIterable<UnifiedExecEvent>;
  close(): Promise<void>;
}

export interface HeadlessRunOptions {
  prompt: string;
  /** The thread to continue: its id and its items so far. */
  resume?: { threadId: string; history: readonly JsonObject[] } | undefined;
  /** Called with each new thread item, including the prompt, unchanged. A later run resumes from these items. */
  onHistory?: ((threadId: string, item: JsonObject) => void) | undefined;
  /** Data URLs of images that belong to the prompt. */
  images?: readonly string[];
  /** JSON Schema of the final message. */
  outputSchema?: Readonly<Record<string, unknown>> | undefined;
  /** Maximum number of model calls. The turn fails if it has not ended by then. */
  maxTurns?: number | undefined;
  /** How a user raises `maxTurns`; ends the error message. */
  maxTurnsHint?: string | undefined;
  /** Maximum usage, subagents included. The turn fails before the next model call once it is reached. */
  budgetTokens?: number | undefined;
  model: string;
  instructions: string;
  reasoningEffort?: string | undefined;
  callModel: CallModel;
  createTools(context: RunContext): Promise<RunToolset>;
  output: RunOutput;
  /** Aborts when the user interrupts the run. */
  signal: AbortSignal;
  newId: () => string;
  /** Maximum number of queued events; further droppable events are dropped. */
  streamCapacity?: number;
  /** Maximum duration of the shutdown after the turn. */
  shutdownMs?: number;
}

export interface HeadlessRunResult {
  type: "completed" | "failed" | "interrupted";
  /** The last message of the agent. */
  lastMessage: string | null;
}

const DEFAULT_SHUTDOWN_MS = 5_000;

/** Runs one turn. Resolves when everything the run started is closed, or after the shutdown timeout. */
export async function runHeadless(options: HeadlessRunOptions): Promise<HeadlessRunResult> {
  return new HeadlessRun(options).run();
}

class HeadlessRun {
  #options: HeadlessRunOptions;
  #threadId: string;
  #turnId: string;
  #stream: BoundedEventQueue<AgentNotification>;
  #usage: TokenUsage = NO_USAGE;
  #subagentsUsage: TokenUsage | null = null;
  #lastMessage: string | null = null;
  #hasError = false;

  constructor(options: HeadlessRunOptions) {
    this.#options = options;
    this.#threadId = options.resume?.threadId ?? options.newId();
    this.#turnId = options.newId();
    this.#stream = new BoundedEventQueue(options.streamCapacity);
  }

  async run(): Promise<HeadlessRunResult> {
    const { output } = this.#options;
    let toolSet: RunToolset;
    try {
      toolSet = await this.#options.createTools(this.#context());
    } catch (error) {
      output.failure(errorMessage(error));
      output.close();
      return this.#end("failed");
    }
    this.#notify({ method: "thread/started", threadId: this.#threadId });
    const commands = this.#emitCommandItems(toolSet);
    const turn = this.#startTurn(toolSet.tools).finally(() => this.#stream.end());
    turn.catch(() => undefined);
    try {
      return await this.#forwardEvents();
    } finally {
      await this.#shutDown(
        turn.catch(() => undefined).then(() => toolSet.close()),
        commands,
      );
    }
  }

  /** Emits items until the tools are closed. */
  async #emitCommandItems({ events }: RunToolset): Promise<void> {
    const ids = { threadId: this.#threadId, turnId: this.#turnId };
    if (!events) return;
    await followCommands(
      events(),
      (method, item) => this.#notify({ method, ...ids, item }),
      (event) => this.#notify({ method: "tool/event", ...ids, event }),
    );
  }

  #startTurn(tools: Tool[]) {
    const { prompt, images = [], budgetTokens, resume, onHistory } = this.#options;
    const content = [
      { type: "input_text", text: prompt },
      ...images.map((url) => ({ type: "input_image", image_url: url })),
    ];
    const promptItem = { type: "message", role: "user", content };
    const recordItem = (item: JsonObject) => onHistory?.(this.#threadId, item);
    recordItem(promptItem);
    return runTurn({
      threadId: this.#threadId,
      turnId: this.#turnId,
      model: this.#options.model,
      instructions: this.#options.instructions,
      reasoningEffort: this.#options.reasoningEffort,
      cacheKey: this.#threadId,
      headers: { session_id: this.#threadId },
      tools,
      history: [...(resume?.history ?? []), promptItem],
      onHistory: recordItem,
      outputSchema: this.#options.outputSchema,
      maxModelCalls: this.#options.maxTurns,
      callLimitHint: this.#options.maxTurnsHint,
      shouldContinue: (usage) => {
        const used = totalTokens(addUsage(usage, this.#subagentsUsage ?? NO_USAGE));
        if (budgetTokens !== undefined && used >= budgetTokens)
          throw new Error(`the budget of ${budgetTokens} tokens is used up (${used})`);
      },
      signal: this.#options.signal,
      callModel: this.#options.callModel,
      notify: (notification) => this.#notify(notification),
    });
  }

  /** Forwards events to the output until this turn ends. */
  async #forwardEvents(): Promise<HeadlessRunResult> {
    const { output } = this.#options;
    for await (const entry of this.#stream) {
      await output.whenDrained();
      if (entry.type === "lagged") {
        output.warning(`the event stream lagged; ${entry.skipped} events were dropped`);
        continue;
      }
      const notification = entry.value;
      const end = decodeTurnCompleted(notification, this.#threadId, this.#turnId);
      if (end) {
        this.#hasError ||= end.terminalError;
        output.turnCompleted(end.event, {
          error: notification.method === "turn/completed" ? notification.turn.error : null,
          lastMessage: this.#lastMessage,
          usage: this.#usage,
          subagentsUsage: this.#subagentsUsage,
        });
        return this.#end(end.event.msg.type === "turnAborted" ? "interrupted" : "completed");
      }
      this.#record(notification);
      output.notification(notification);
    }
    output.failure("the turn ended without saying how");
    return this.#end("failed");
  }

  /** Returns the result. A completed run fails if an error was reported before. */
  #end(type: HeadlessRunResult["type"]): HeadlessRunResult {
    return {
      type: type === "completed" && this.#hasError ? "failed" : type,
      lastMessage: this.#lastMessage,
    };
  }

  /** Stores the values of this turn that the result contains. */
  #record(notification: AgentNotification): void {
    if (!("turnId" in notification)) return;
    if (notification.threadId !== this.#threadId || notification.turnId !== this.#turnId) return;
    if (notification.method === "error" && !notification.willRetry) this.#hasError = true;
    if (notification.method === "thread/tokenUsage") this.#usage = notification.usage;
    if (notification.method === "item/completed" && notification.item.type === "agentMessage") {
      this.#lastMessage = notification.item.text;
    }
  }

  #notify(notification: AgentNotification, required = true): void {
    this.#stream.push(notification, { required: required && notification.method !== "item/updated" });
  }

  #context(): RunContext {
    return {
      threadId: this.#threadId,
      turnId: this.#turnId,
      notify: (notification, options) => this.#notify(notification, options?.required ?? false),
      addSubagentsUsage: (usage) => {
        this.#subagentsUsage = addUsage(this.#subagentsUsage ?? NO_USAGE, usage);
      },
    };
  }

  async #shutDown(...tasks: Promise<unknown>[]): Promise<void> {
    const { output, shutdownMs = DEFAULT_SHUTDOWN_MS } = this.#options;
    try {
      await withDeadline(Promise.all(tasks), shutdownMs, "the tools to close");
      await withDeadline(output.whenDrained(), shutdownMs, "the output to be read");
    } catch (error) {
      output.warning(`shutdown: ${errorMessage(error)}`);
    } finally {
      output.close();
    }
  }
}
