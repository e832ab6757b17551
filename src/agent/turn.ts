/**
 * agent/: one agent. The Responses API's stream, retries, the turn loop, the typed end of a turn, and what a run prints.
 * It is given its tools and a place to send what happens; it starts no process, knows no table and no job.
 */

import { systemClock } from "../async/clock.ts";
import { TimeoutError, withDeadline } from "../async/deadline.ts";
import type { Tool, ToolOutput } from "../tools/tool.ts";
import type { CallHooks, CallModel } from "./model-call.ts";
import { ModelError } from "./model-error.ts";
import type { ItemProgress, Notification, ThreadItem, TurnStatus } from "./notification.ts";
import type { JsonObject, OutputItem } from "./response-events.ts";
import { addUsage, NO_USAGE, type TokenUsage } from "./usage.ts";

export interface TurnOptions {
  threadId: string;
  turnId: string;
  model: string;
  instructions: string;
  cacheKey: string;
  reasoningEffort?: string | undefined;
  headers?: Readonly<Record<string, string>>;
  tools: readonly Tool[];
  /** What was said so far, the new question last. The turn appends to it. */
  history: JsonObject[];
  signal: AbortSignal;
  callModel: CallModel;
  hooks?: CallHooks;
  notify?: (notification: Notification) => void;
  /** Calls of one answer are made one after another, and the turn ends without a further call once this says so. */
  endsTurn?: (tool: string, output: ToolOutput) => boolean;
  /** A turn that has asked the model this often fails. */
  maxModelCalls?: number;
}

export type TurnOutcome =
  | { type: "completed"; usage: TokenUsage; lastMessage: string | null; refusal: string | null }
  | { type: "failed"; usage: TokenUsage; error: Error }
  | { type: "interrupted"; usage: TokenUsage };

/** The turn made more calls than it may. */
export class TooManyCallsError extends Error {
  override readonly name = "TooManyCallsError";
}

/**
 * Asks the model, makes the calls it wants, tells it the results, until it wants none. Never rejects for what the model,
 * the API or a tool did: that is an outcome.
 */
export async function runTurn(options: TurnOptions): Promise<TurnOutcome> {
  const turn = new RunningTurn(options);
  options.notify?.({ method: "turn/started", threadId: options.threadId, turnId: options.turnId });
  const outcome = await turn.run();
  turn.tellEnd(outcome);
  return outcome;
}

/** How long a tool may take to wind up after the turn was interrupted: a job writes its results in this time. */
const TOOL_WIND_UP_MS = 10_000;

class RunningTurn {
  #options: TurnOptions;
  #usage: TokenUsage = NO_USAGE;
  #items: ThreadItem[] = [];
  #nextItem = 0;
  #lastMessage: string | null = null;
  #refusal: string | null = null;

  constructor(options: TurnOptions) {
    this.#options = options;
  }

  async run(): Promise<TurnOutcome> {
    const { signal, maxModelCalls = Number.POSITIVE_INFINITY } = this.#options;
    try {
      for (let calls = 0; ; calls++) {
        if (calls >= maxModelCalls) {
          throw new TooManyCallsError(`the model was asked ${calls} times without coming to an end`);
        }
        const items = await this.#ask();
        const wanted = items.filter((item) => item.type === "functionCall");
        if (wanted.length === 0) break;
        if (await this.#callTools(wanted)) break;
        signal.throwIfAborted();
      }
      return {
        type: "completed",
        usage: this.#usage,
        lastMessage: this.#lastMessage,
        refusal: this.#refusal,
      };
    } catch (error) {
      if (error instanceof ModelError) this.#usage = addUsage(this.#usage, error.usage);
      if (signal.aborted) return { type: "interrupted", usage: this.#usage };
      return { type: "failed", usage: this.#usage, error: toError(error) };
    }
  }

  tellEnd(outcome: TurnOutcome): void {
    const { notify, threadId, turnId } = this.#options;
    if (!notify) return;
    notify({ method: "thread/tokenUsage", threadId, turnId, usage: outcome.usage });
    const error = outcome.type === "failed" ? { message: outcome.error.message } : null;
    if (error) notify({ method: "error", threadId, turnId, message: error.message, willRetry: false });
    const status: TurnStatus = outcome.type;
    notify({ method: "turn/completed", threadId, turn: { id: turnId, items: this.#items, status, error } });
  }

  async #ask(): Promise<OutputItem[]> {
    const { callModel, notify, threadId, turnId, hooks, headers } = this.#options;
    const answer = await callModel(
      {
        model: this.#options.model,
        instructions: this.#options.instructions,
        input: this.#options.history,
        tools: this.#options.tools.map((tool) => tool.definition),
        parallelToolCalls: this.#options.endsTurn === undefined,
        reasoningEffort: this.#options.reasoningEffort,
        cacheKey: this.#options.cacheKey,
        ...(headers ? { headers } : {}),
      },
      this.#options.signal,
      {
        ...hooks,
        onRetry: (error, delayMs) => {
          hooks?.onRetry?.(error, delayMs);
          const message = `${error.message}; asking again in ${(delayMs / 1000).toFixed(1)} s`;
          notify?.({ method: "error", threadId, turnId, message, willRetry: true });
        },
      },
    );
    this.#usage = addUsage(this.#usage, answer.usage);
    for (const item of answer.items) this.#record(item);
    return answer.items;
  }

  #record(item: OutputItem): void {
    this.#options.history.push(item.raw);
    if (item.type === "message") {
      this.#lastMessage = item.text || item.refusal;
      this.#refusal = item.refusal;
      this.#tell("item/completed", {
        type: "agentMessage",
        id: this.#itemId(),
        text: this.#lastMessage ?? "",
      });
    } else if (item.type === "reasoning" && item.summary !== "") {
      this.#tell("item/completed", { type: "reasoning", id: this.#itemId(), text: item.summary });
    }
  }

  /** True when one of the calls has ended the turn. */
  async #callTools(calls: FunctionCall[]): Promise<boolean> {
    const { endsTurn } = this.#options;
    if (!endsTurn) {
      const outputs = await Promise.all(calls.map((call) => this.#callTool(call)));
      for (const [index, call] of calls.entries()) this.#answer(call, outputs[index]);
      return false;
    }
    for (const call of calls) {
      const output = await this.#callTool(call);
      this.#answer(call, output);
      if (endsTurn(call.name, output)) return true;
    }
    return false;
  }

  #answer(call: FunctionCall, output: ToolOutput | undefined): void {
    this.#options.history.push({
      type: "function_call_output",
      call_id: call.callId,
      output: output?.text ?? "",
    });
  }

  async #callTool(call: FunctionCall): Promise<ToolOutput> {
    const id = this.#itemId();
    const args = parseArguments(call.arguments);
    this.#tell("item/started", toolItem(id, call.name, args.value, null));
    const output = args.error ? refused(args.error) : await this.#invoke(call.name, args.value);
    this.#tell("item/completed", toolItem(id, call.name, args.value, output));
    return output;
  }

  async #invoke(name: string, args: unknown): Promise<ToolOutput> {
    const tool = this.#options.tools.find((candidate) => candidate.definition.name === name);
    if (!tool) return refused(`unsupported call: ${name}`);
    const { signal } = this.#options;
    const call = tool.call(args, { signal });
    try {
      return await boundedAfterAbort(call, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      return { ...refused(`${name} failed: ${toError(error).message}`), structured: { crashed: true } };
    }
  }

  #tell(method: "item/started" | "item/completed", item: ThreadItem): void {
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

/** Waits for a tool, and once the turn is interrupted only a little longer. */
async function boundedAfterAbort(call: Promise<ToolOutput>, signal: AbortSignal): Promise<ToolOutput> {
  const late = Promise.withResolvers<never>();
  const onAbort = () => {
    withDeadline(call, TOOL_WIND_UP_MS, "a tool to wind up", systemClock).catch((error: unknown) => {
      if (error instanceof TimeoutError) late.reject(error);
    });
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([call, late.promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

function parseArguments(text: string): { value: unknown; error: string | null } {
  if (text.trim() === "") return { value: {}, error: null };
  try {
    const value: unknown = JSON.parse(text);
    return { value, error: null };
  } catch (error) {
    return { value: text, error: `failed to parse function arguments: ${toError(error).message}` };
  }
}

function refused(text: string): ToolOutput {
  return { text, ok: false };
}

function toolItem(id: string, tool: string, args: unknown, output: ToolOutput | null): ThreadItem {
  const status: ItemProgress = output === null ? "inProgress" : output.ok ? "completed" : "failed";
  const command = tool === "exec_command" ? commandOf(args) : undefined;
  if (command === undefined) {
    return { type: "toolCall", id, tool, arguments: args, output: output?.text ?? "", status };
  }
  const exitCode = output?.structured?.exit_code;
  const text = output?.structured?.output;
  return {
    type: "commandExecution",
    id,
    command,
    output: typeof text === "string" ? text : (output?.text ?? ""),
    exitCode: typeof exitCode === "number" ? exitCode : null,
    status: status === "completed" && typeof exitCode === "number" && exitCode !== 0 ? "failed" : status,
  };
}

function commandOf(args: unknown): string | undefined {
  if (typeof args !== "object" || args === null || !("cmd" in args)) return undefined;
  return typeof args.cmd === "string" ? args.cmd : undefined;
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
