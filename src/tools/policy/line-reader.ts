import { closeSync, constants, openSync, readSync } from "node:fs";
import { StringDecoder } from "node:string_decoder";
import type { ReadStream } from "node:tty";
import { Channel } from "../../async/channel.ts";

/** The lines of an input, read only while somebody waits for one. */
export class TypedLines {
  readonly #input: NodeJS.ReadableStream;
  readonly #decoder = new StringDecoder("utf8");
  #lines = new Channel<string>();
  /** The beginning of a line whose end has not come yet. */
  #begun = "";

  constructor(input: NodeJS.ReadableStream) {
    this.#input = input;
    input.on("data", (chunk: Buffer | string) => this.#take(chunk));
    for (const end of ["end", "close", "error"]) input.on(end, () => this.#end());
    input.pause();
  }

  /** The next line, or null when there will be none, or when the wait was given up. */
  async next(signal?: AbortSignal): Promise<string | null> {
    // A reader that goes on would keep the program alive, and take what others want to read.
    this.#input.resume();
    try {
      const line = await this.#lines.next(signal);
      return line.done ? null : line.value;
    } catch {
      // Nothing but the signal ends a wait for a line in this way.
      return null;
    } finally {
      this.#input.pause();
    }
  }

  /** Forgets what has come so far and was not asked for. */
  discard(): void {
    while (this.#input.read() !== null);
    this.#begun = "";
    if (!this.#lines.isEnded) this.#lines = new Channel();
  }

  #take(chunk: Buffer | string): void {
    const text = this.#begun + (typeof chunk === "string" ? chunk : this.#decoder.write(chunk));
    const lines = text.split(/\r?\n/);
    this.#begun = lines.pop() ?? "";
    for (const line of lines) this.#lines.push(line);
  }

  #end(): void {
    if (this.#begun !== "") this.#lines.push(this.#begun);
    this.#begun = "";
    this.#lines.end();
  }
}

/**
 * Throws away what was typed on a terminal and nobody has read: whole lines, and the beginning of one. `path` opens the same
 * terminal once more, without waiting.
 */
export function discardTyped(input: Pick<ReadStream, "setRawMode" | "destroyed">, path: string): void {
  if (input.destroyed) return;
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  const scratch = Buffer.alloc(4096);
  try {
    // Line by line, the terminal keeps the beginning of a line to itself; in raw mode it gives away all it has.
    input.setRawMode(true);
    while (readSync(fd, scratch) > 0);
  } catch (error) {
    // EAGAIN: there is no more.
    if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) throw error;
  } finally {
    input.setRawMode(false);
    closeSync(fd);
  }
}
