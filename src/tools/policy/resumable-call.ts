import type { ToolCallContext, ToolOutput } from "../tool.ts";
import type { ApprovalAnswer, ApprovalRequest } from "./approval.ts";

/** What a call came to next. */
export type Turn = { type: "ended"; output: ToolOutput } | { type: "asks"; request: ApprovalRequest };

/**
 * A call of a tool that may stop to ask, for callers that send the answer in a later request: the call waits meanwhile, and
 * goes on when it is answered. Each wait has a signal and a progress callback of its own.
 */
export class AskingCall {
  readonly #output: Promise<ToolOutput>;
  readonly #giveUp = new AbortController();
  #asked = Promise.withResolvers<ApprovalRequest>();
  #answer: (answer: ApprovalAnswer) => void = () => undefined;
  #onProgress: ((message: string) => void) | undefined;

  constructor(call: (context: ToolCallContext) => Promise<ToolOutput>) {
    this.#output = call({
      signal: this.#giveUp.signal,
      onProgress: (message) => this.#onProgress?.(message),
      askCaller: (request) => this.#ask(request),
    });
    // `turn` passes a failure on; between two turns nothing waits for it.
    this.#output.catch(() => undefined);
  }

  /** Waits for its end or its next question. */
  async turn(signal: AbortSignal, onProgress?: (message: string) => void): Promise<Turn> {
    const giveUp = () => this.giveUp();
    this.#onProgress = onProgress;
    signal.addEventListener("abort", giveUp, { once: true });
    if (signal.aborted) giveUp();
    try {
      return await Promise.race([
        this.#output.then((output): Turn => ({ type: "ended", output })),
        this.#asked.promise.then((request): Turn => ({ type: "asks", request })),
      ]);
    } finally {
      this.#onProgress = undefined;
      signal.removeEventListener("abort", giveUp);
    }
  }

  answer(answer: ApprovalAnswer): void {
    this.#asked = Promise.withResolvers();
    this.#answer(answer);
  }

  /** Ends the wait; an open question is a no. */
  giveUp(): void {
    this.#giveUp.abort();
    this.answer({ type: "refuse", reason: "the call was cancelled" });
  }

  #ask(request: ApprovalRequest): Promise<ApprovalAnswer> {
    const { promise, resolve } = Promise.withResolvers<ApprovalAnswer>();
    this.#answer = resolve;
    this.#asked.resolve(request);
    return promise;
  }
}
