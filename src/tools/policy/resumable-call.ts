import { onAbort } from "../../async/abort.ts";
import type { ToolCallContext, ToolOutput } from "../tool.ts";
import type { ApprovalAnswer, ApprovalRequest } from "./approval.ts";

/** Next state of a call: finished, or waiting for an approval. */
export type CallStep = { type: "ended"; output: ToolOutput } | { type: "asks"; request: ApprovalRequest };

/**
 * A tool call that can pause for an approval, for callers that send the answer in a later request. The call waits for
 * `answer`. Each `next` has its own signal and progress callback.
 */
export class ResumableCall {
  readonly #output: Promise<ToolOutput>;
  readonly #abort = new AbortController();
  #pendingPrompt = Promise.withResolvers<ApprovalRequest>();
  #answer: (answer: ApprovalAnswer) => void = () => undefined;
  #onProgress: ((message: string) => void) | undefined;

  constructor(call: (context: ToolCallContext) => Promise<ToolOutput>) {
    this.#output = call({
      signal: this.#abort.signal,
      onProgress: (message) => this.#onProgress?.(message),
      askCaller: (request) => this.#ask(request),
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
        this.#pendingPrompt.promise.then((request): CallStep => ({ type: "asks", request })),
      ]);
    } finally {
      this.#onProgress = undefined;
      stop();
    }
  }

  answer(answer: ApprovalAnswer): void {
    this.#pendingPrompt = Promise.withResolvers();
    this.#answer(answer);
  }

  /** Aborts the call and rejects a pending approval. */
  cancel(): void {
    this.#abort.abort();
    this.answer({ type: "refuse", reason: "the call was cancelled" });
  }

  #ask(request: ApprovalRequest): Promise<ApprovalAnswer> {
    const { promise, resolve } = Promise.withResolvers<ApprovalAnswer>();
    this.#answer = resolve;
    this.#pendingPrompt.resolve(request);
    return promise;
  }
}
