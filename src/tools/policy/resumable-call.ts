import { onAbort } from "../../async/abort.ts";
import { KeyedQueue } from "../../async/keyed-queue.ts";
import type { ToolCallContext, ToolOutput } from "../tool.ts";
import type { ApprovalAnswer, ApprovalRequest } from "./approval.ts";

/** Next state of a call: finished, or waiting for an approval. */
export type CallStep = { type: "ended"; output: ToolOutput } | ({ type: "asks" } & Prompt);

interface Prompt {
  request: ApprovalRequest;
  /** Aborts when the prompt is withdrawn, for example by an answer in the web console. */
  signal: AbortSignal | undefined;
}

/**
 * A tool call that can pause for an approval, for callers that send the answer in a later request. The call waits for
 * `answer`. Each `next` has its own signal and progress callback.
 */
export class ResumableCall {
  readonly #output: Promise<ToolOutput>;
  readonly #abort = new AbortController();
  readonly #prompts = new KeyedQueue<"ask">();
  #pendingPrompt = Promise.withResolvers<Prompt>();
  #current: { request: ApprovalRequest; resolve: (answer: ApprovalAnswer) => void } | null = null;
  #onProgress: ((message: string) => void) | undefined;

  constructor(call: (context: ToolCallContext) => Promise<ToolOutput>) {
    this.#output = call({
      signal: this.#abort.signal,
      onProgress: (message) => this.#onProgress?.(message),
      // One prompt at a time: an answer must never reach another question.
      askCaller: (request, signal) => this.#prompts.run("ask", () => this.#ask(request, signal)),
    });
    // `next` reports a failure. Between two calls of `next`, no caller awaits the output.
    this.#output.catch(() => undefined);
  }

  /** Waits for the end of the call or its next approval request. */
  async next(signal: AbortSignal, onProgress?: (message: string) => void): Promise<CallStep> {
    this.#onProgress = onProgress;
    const stop = onAbort(signal, () => this.cancel());
    try {
      return await Promise.race([
        this.#output.then((output): CallStep => ({ type: "ended", output })),
        this.#pendingPrompt.promise.then((prompt): CallStep => ({ type: "asks", ...prompt })),
      ]);
    } finally {
      this.#onProgress = undefined;
      stop();
    }
  }

  /** Answers the prompt for `request`, by default the open one. No-op if that prompt was answered or withdrawn before. */
  answer(answer: ApprovalAnswer, request = this.#current?.request): void {
    const current = this.#current;
    if (!current || current.request !== request) return;
    this.#current = null;
    this.#pendingPrompt = Promise.withResolvers();
    current.resolve(answer);
  }

  /** Aborts the call and rejects a pending approval. */
  cancel(): void {
    this.#abort.abort();
    this.answer({ type: "refuse", reason: "the call was cancelled" });
  }

  async #ask(request: ApprovalRequest, signal: AbortSignal | undefined): Promise<ApprovalAnswer> {
    // A prompt that waited in the queue may be obsolete by now.
    if (signal?.aborted || this.#abort.signal.aborted) return { type: "refuse", reason: "the call was cancelled" };
    const { promise, resolve } = Promise.withResolvers<ApprovalAnswer>();
    this.#current = { request, resolve };
    this.#pendingPrompt.resolve({ request, signal });
    const withdraw = () => this.answer({ type: "refuse", reason: "the prompt was withdrawn" }, request);
    const stop = signal ? onAbort(signal, withdraw) : () => undefined;
    return promise.finally(stop);
  }
}
