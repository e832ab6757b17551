/** The members of a Node stream that `LineWriter` uses. */
export interface LineSink {
  write(text: string): boolean;
  once(event: "drain" | "close" | "error", listener: () => void): unknown;
  off(event: "drain" | "close" | "error", listener: () => void): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

/** Writes complete lines and tracks whether the reader keeps up. */
export class LineWriter {
  #sink: LineSink;
  #isFull = false;

  constructor(sink: LineSink) {
    this.#sink = sink;
  }

  line(text: string): void {
    if (!this.#sink.write(`${text}\n`)) this.#isFull = true;
  }

  /** Resolves when the reader accepts more data, or has closed the stream. */
  async drained(): Promise<void> {
    if (!this.#isFull) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const events = ["drain", "close", "error"] as const;
    for (const event of events) this.#sink.once(event, resolve);
    await promise;
    for (const event of events) this.#sink.off(event, resolve);
    this.#isFull = false;
  }
}
