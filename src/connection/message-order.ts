import { errorMessage } from "../base/error-message.ts";
import type { ParsedMessage } from "../protocol/envelope.ts";

/**
 * Minimum size of a message that another thread parses, unless it is one short envelope around a chunk. A smaller one
 * takes at most about 10 ms on the event loop, whatever it contains.
 */
export const PARSED_ASIDE_BYTES = 64 * 1024;

/** Keeps the order of received messages while another thread parses one of them. */
export class MessageOrder {
  #waiting: (() => void)[] | null = null;

  /** Whether a message is being parsed. Later ones wait, so their bytes must be retained. */
  get isBusy(): boolean {
    return this.#waiting !== null;
  }

  /** Runs the task after the messages before it. */
  run(task: () => void): void {
    if (this.#waiting) this.#waiting.push(task);
    else task();
  }

  /** Parses a message and runs `task` with it, before all later tasks. A failed parser makes the message malformed. */
  async runParsed(parsing: Promise<ParsedMessage | null>, task: (parsed: ParsedMessage | null) => void): Promise<void> {
    this.#waiting = [];
    const parsed = await parsing.catch((error: unknown) => ({ ok: false as const, problem: errorMessage(error) }));
    const waiting = this.#waiting;
    this.#waiting = null;
    task(parsed);
    // A waiting task may begin to parse another message; the rest then waits for that one.
    for (const next of waiting) this.run(next);
  }
}
