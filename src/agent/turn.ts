import { onAbort } from "../async/abort.ts";
import { systemClock } from "../async/clock.ts";
import { TimeoutError, withDeadline } from "../async/deadline.ts";
import { toError } from "../base/error-message.ts";
import { isObject } from "../base/type-guards.ts";
import type { Tool, ToolOutput } from "../tools/tool.ts";
import type { AgentNotification, ItemProgress, ThreadItem } from "./agent-notification.ts";
import type { RequestOptions } from "./api/model-api.ts";
import type { CallModel } from "./api/model-caller.ts";
import { ModelError } from "./api/model-error.ts";
import type { JsonObject, OutputItem } from "./api/response-events.ts";
import { parseToolArguments } from "./arguments/function-arguments.ts";
import { NO_EXIT_CODE } from "./output/command-items.ts";
import { addUsage, NO_USAGE, type TokenUsage } from "./token-usage.ts";

export interface TurnOptions {
  threadId: string;
  turnId: string;
  model: string;
  instructions: string;
  cacheKey: string;
  reasoningEffort?: string | undefined;
  outputSchema?: JsonObject | undefined;
  requestOptions?: RequestOptions | undefined;
  headers?: Readonly<Record<string, string>> | undefined;
  tools: readonly Tool[];
  /** Items of the thread; the last one is the new prompt. The turn appends to it. */
  history: JsonObject[];
  /** Called with each item that the turn appends to `history`, unchanged. */
  onHistory?: ((item: JsonObject) => void) | undefined;
  signal: AbortSignal;
  callModel: CallModel;
  notify?: (notification: AgentNotification) => void;
  /**
   * Reports whether a tool output ends the turn. If set, the calls of one answer run one after another, and no further
   * call runs after the end.
   */
  endsTurn?: (tool: string, output: ToolOutput) => boolean;
  /** The only useful tool. The request forces the model to call it if the API supports that. */
  forcedTool?: string | undefined;
  /** Returns the reply to an answer without tool calls, or null to end the turn. */
  replyToText?: (text: string) => Promise<string | null>;
  /** Maximum number of model calls; the turn fails beyond it. */
  maxModelCalls?: number | undefined;
  /** How a user raises `maxModelCalls`; ends the error message. */
  callLimitHint?: string | undefined;
  /** Called before each further model call. If it throws, the turn fails. */
  shouldContinue?: ((usage: TokenUsage) => void) | undefined;
}

export type TurnOutcome =
  | { type: "completed"; usage: TokenUsage; lastMessage: string | null; refusal: string | null }
  | { type: "failed"; usage: TokenUsage; error: Error }
  | { type: "interrupted"; usage: TokenUsage };

/** Maximum warnings about unknown tools, because a model can invent any number of names. */
const MAX_UNKNOWN_TOOLS = 20;

/** The turn exceeded `maxModelCalls`. */
export class ModelCallLimitError extends Error {
  override readonly name = "ModelCallLimitError";
}

/**
 * Calls the model, runs the tool calls of its answer and returns their outputs to it, until an answer has no calls.
 * Errors of the model, the API or a tool are outcomes; they never reject.
 */
export async function runTurn(options: TurnOptions): Promise<TurnOutcome> {
  const turn = new RunningTurn(options);
  options.notify?.({ method: "turn/started", threadId: options.threadId, turnId: options.turnId });
  const outcome = await turn.run();
  turn.emitEnd(outcome);
  return outcome;
}

/** Grace period of a tool after an interrupt. A job writes its results in this time. */
const TOOL_GRACE_MS = 10_000;

class RunningTurn {
  #options: TurnOptions;
  #usage: TokenUsage = NO_USAGE;
  #items: ThreadItem[] = [];
  #nextItem = 0;
  #lastMessage: string | null = null;
  #refusal: string | null = null;
  /** Number of items of the current answer that were processed during streaming. */
  #acceptedItems = 0;
  /** Tool calls that started during streaming and have no output in the history yet. */
  #calls: { call: FunctionCall; output: Promise<ToolOutput> }[] = [];

  /** Names of unknown tools that a warning has reported. */
  readonly #unknownTools = new Set<string>();

  constructor(options: TurnOptions) {
    this.#options = options;
  }

  async run(): Promise<TurnOutcome> {
    const { signal, maxModelCalls, callLimitHint } = this.#options;
    try {
      for (let calls = 0; ; calls++) {
        if (maxModelCalls !== undefined && calls >= maxModelCalls) {
          const hint = callLimitHint === undefined ? "" : `; ${callLimitHint}`;
          throw new ModelCallLimitError(`the turn did not end within ${calls} model calls${hint}`);
        }
        const items = await this.#requestAnswer();
        const toolCalls = items.filter((item) => item.type === "functionCall");
        if (toolCalls.length === 0) {
          if (await this.#isDone()) break;
          continue;
        }
        if (await this.#callTools(toolCalls)) break;
        signal.throwIfAborted();
        this.#options.shouldContinue?.(this.#usage);
      }
      return {
        type: "completed",
        usage: this.#usage,
        lastMessage: this.#lastMessage,
        refusal: this.#refusal,
      };
    } catch (error) {
      if (error instanceof ModelError) this.#usage = addUsage(this.#usage, error.usage);
      await this.#recordOutputs().catch(() => undefined);
      if (signal.aborted) return { type: "interrupted", usage: this.#usage };
      return { type: "failed", usage: this.#usage, error: toError(error) };
    }
  }

  /** Reports whether the last message of the model ends the turn. */
  async #isDone(): Promise<boolean> {
    const { replyToText, history, signal } = this.#options;
    if (!replyToText || this.#refusal !== null) return true;
    const reply = await replyToText(this.#lastMessage ?? "");
    signal.throwIfAborted();
    if (reply === null) return true;
    history.push({ type: "message", role: "user", content: [{ type: "input_text", text: reply }] });
    return false;
  }

  emitEnd(outcome: TurnOutcome): void {
    const { notify, threadId, turnId } = this.#options;
    if (!notify) return;
    notify({ method: "thread/tokenUsage", threadId, turnId, usage: outcome.usage });
    const error = outcome.type === "failed" ? { message: outcome.error.message } : null;
    if (error) notify({ method: "error", threadId, turnId, message: error.message, willRetry: false });
    const turn = { id: turnId, items: this.#items, status: outcome.type, error };
    notify({ method: "turn/completed", threadId, turn });
  }

  async #requestAnswer(): Promise<OutputItem[]> {
    const { callModel, notify, threadId, turnId, headers } = this.#options;
    const answer = await callModel(
      {
        model: this.#options.model,
        instructions: this.#options.instructions,
        input: this.#options.history,
        tools: this.#options.tools.map((tool) => tool.definition),
        forcedTool: this.#options.forcedTool,
        parallelToolCalls: this.#options.endsTurn === undefined,
        reasoningEffort: this.#options.reasoningEffort,
        outputSchema: this.#options.outputSchema,
        options: this.#options.requestOptions,
        cacheKey: this.#options.cacheKey,
        headers,
      },
      this.#options.signal,
      {
        // A call that may end the turn has to wait for the calls before it.
        onItem: (item) => {
          if (!this.#options.endsTurn) this.#acceptItem(item);
        },
        onRetry: (error, _delayMs, tries) => {
          const count = tries.of === null ? `${tries.count}` : `${tries.count}/${tries.of}`;
          const message = `Reconnecting... ${count} (${error.message})`;
          notify?.({ method: "error", threadId, turnId, message, willRetry: true });
        },
        beforeRetry: () => this.#recordOutputs(),
      },
    );
    this.#usage = addUsage(this.#usage, answer.usage);
    // Some servers send the items only with the final event.
    for (const item of answer.items.slice(this.#acceptedItems)) {
      if (this.#options.endsTurn) this.#record(item);
      else this.#acceptItem(item);
    }
    this.#acceptedItems = 0;
    return answer.items;
  }

  /** Appends an item to the history and starts its tool call while the rest of the answer arrives. */
  #acceptItem(item: OutputItem): void {
    this.#acceptedItems++;
    this.#record(item);
    if (item.type !== "functionCall") return;
    const output = this.#callTool(item);
    // `#recordOutputs` awaits the output; this handler only prevents an unhandled rejection before that.
    output.catch(() => undefined);
    this.#calls.push({ call: item, output });
  }

  /** Waits for the calls in flight and appends their outputs to the history, in order. */
  async #recordOutputs(): Promise<void> {
    const calls = this.#calls;
    this.#calls = [];
    this.#acceptedItems = 0;
    for (const { call, output } of calls) this.#recordOutput(call, await output);
  }

  #record(item: OutputItem): void {
    this.#appendHistory(item.raw);
    if (item.type === "message") {
      this.#lastMessage = item.text || item.refusal;
      this.#refusal = item.refusal;
      this.#emit("item/completed", {
        type: "agentMessage",
        id: this.#itemId(),
        text: this.#lastMessage ?? "",
      });
    } else if (item.type === "reasoning" && item.summary !== "") {
      this.#emit("item/completed", { type: "reasoning", id: this.#itemId(), text: item.summary });
    }
  }

  /** Returns true if one of the calls ends the turn. */
  async #callTools(calls: FunctionCall[]): Promise<boolean> {
    const { endsTurn } = this.#options;
    if (!endsTurn) {
      await this.#recordOutputs();
      return false;
    }
    for (const call of calls) {
      const output = await this.#callTool(call);
      this.#recordOutput(call, output);
      if (endsTurn(call.name, output)) return true;
    }
    return false;
  }

  #recordOutput(call: FunctionCall, output: ToolOutput): void {
    this.#appendHistory({ type: "function_call_output", call_id: call.callId, output: output.text });
  }

  #appendHistory(item: JsonObject): void {
    this.#options.history.push(item);
    this.#options.onHistory?.(item);
  }

  async #callTool(call: FunctionCall): Promise<ToolOutput> {
    const { name } = call;
    const tool = this.#options.tools.find((candidate) => candidate.definition.name === name);
    if (!tool) {
      this.#warnUnknownTool(name);
      return failedOutput(`unsupported call: ${name}`);
    }
    const args = parseToolArguments(name, call.arguments);
    if (args.type === "mistaken") return failedOutput(args.message);
    if (tool.emitsOwnItems) {
      const output = await this.#invoke(tool, args.value);
      this.#emitNotStarted(args.value, output);
      return output;
    }
    const id = this.#itemId();
    this.#emit("item/started", toolItem(id, name, args.value, null));
    const output = await this.#invoke(tool, args.value);
    this.#emit("item/completed", toolItem(id, name, args.value, output));
    return output;
  }

  /** Warns once per name. The model gets an error for each call. */
  #warnUnknownTool(name: string): void {
    if (this.#unknownTools.has(name) || this.#unknownTools.size >= MAX_UNKNOWN_TOOLS) return;
    this.#unknownTools.add(name);
    const { notify, threadId } = this.#options;
    notify?.({ method: "warning", threadId, message: `the model called an unknown tool: ${name}` });
  }

  /** Emits the item of a command that did not start, because such a command has no events. */
  #emitNotStarted(args: unknown, { structured = {} }: ToolOutput): void {
    const { not_started: outcome, argv, reason } = structured;
    if ((outcome !== "declined" && outcome !== "failed") || !Array.isArray(argv)) return;
    const item: ThreadItem = {
      type: "commandExecution",
      id: this.#itemId(),
      command: isObject(args) && typeof args.cmd === "string" ? args.cmd : "",
      argv: argv.map(String),
      output: "",
      exitCode: null,
      status: "inProgress",
    };
    this.#emit("item/started", item);
    this.#emit("item/completed", { ...item, output: String(reason), exitCode: NO_EXIT_CODE, status: outcome });
  }

  async #invoke(tool: Tool, args: unknown): Promise<ToolOutput> {
    const { name } = tool.definition;
    const { signal } = this.#options;
    try {
      return await boundedAfterAbort(tool.call(args, { signal }), signal);
    } catch (error) {
      if (signal.aborted) throw error;
      return { ...failedOutput(`${name} failed: ${toError(error).message}`), structured: { crashed: true } };
    }
  }

  #emit(method: "item/started" | "item/completed", item: ThreadItem): void {
    const { notify, threadId, turnId } = this.#options;
    if (!notify) return;
    if (method === "item/completed") this.#items.push(item);
    notify({ method, threadId, turnId, item });
  }

  #itemId(): string {
    return `item_${this.#nextItem++}`;
  }
}

type FunctionCall = Extract<OutputItem, { type: "functionCall" }>;

/** Waits for a tool, after an interrupt at most `TOOL_GRACE_MS`. */
async function boundedAfterAbort(call: Promise<ToolOutput>, signal: AbortSignal): Promise<ToolOutput> {
  const overdue = Promise.withResolvers<never>();
  const stop = onAbort(signal, () => {
    withDeadline(call, TOOL_GRACE_MS, "a tool to wind up", systemClock).catch((error: unknown) => {
      if (error instanceof TimeoutError) overdue.reject(error);
    });
  });
  try {
    return await Promise.race([call, overdue.promise]);
  } finally {
    stop();
  }
}

function failedOutput(text: string): ToolOutput {
  return { text, ok: false };
}

function toolItem(id: string, tool: string, args: unknown, output: ToolOutput | null): ThreadItem {
  const status: ItemProgress = output === null ? "inProgress" : output.ok ? "completed" : "failed";
  return { type: "toolCall", id, tool, arguments: args, output: output?.text ?? "", status };
}
