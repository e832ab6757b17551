import { closeSync, constants, openSync, readSync } from "node:fs";
import { StringDecoder } from "node:string_decoder";
import { Channel } from "../../async/channel.ts";
import { hasErrorCode } from "../../base/error-code.ts";

/** Reads lines of an input stream. Reads only while a caller waits for a line. */
export class LineReader {
  readonly #input: NodeJS.ReadableStream;
  readonly #decoder = new StringDecoder("utf8");
  #lines = new Channel<string>();
  /** Start of an incomplete line. */
  #partial = "";

  constructor(input: NodeJS.ReadableStream) {
    this.#input = input;
    input.on("data", (chunk: Buffer | string) => this.#receive(chunk));
    for (const end of ["end", "close", "error"]) input.on(end, () => this.#end());
    input.pause();
  }

  /** Returns the next line, or null at the end of the input or on abort. */
  async next(signal?: AbortSignal): Promise<string | null> {
    // A reader that stays active would keep the process alive and consume input of other readers.
    this.#input.resume();
    try {
      const line = await this.#lines.next(signal);
      return line.done ? null : line.value;
    } catch {
      // Only the signal rejects this wait.
      return null;
    } finally {
      this.#input.pause();
    }
  }

  /** Discards all unread input. */
  discard(): void {
    while (this.#input.read() !== null);
    this.#partial = "";
    if (!this.#lines.isEnded) this.#lines = new Channel();
  }

  #receive(chunk: Buffer | string): void {
    const text = this.#partial + (typeof chunk === "string" ? chunk : this.#decoder.write(chunk));
    const lines = text.split(/\r?\n/);
    this.#partial = lines.pop() ?? "";
    for (const line of lines) this.#lines.push(line);
  }

  #end(): void {
    if (this.#partial !== "") this.#lines.push(this.#partial);
    this.#partial = "";
    this.#lines.end();
  }
}

/** The part of a terminal's input stream that `discardPendingInput` uses. */
export interface TerminalInput {
  readonly destroyed: boolean;
  setRawMode(isRaw: boolean): unknown;
}

/**
 * Discards unread terminal input, including an incomplete line. `path` opens the same terminal again in non-blocking mode.
 */
export function discardPendingInput(input: TerminalInput, path: string): void {
  if (input.destroyed) return;
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  const scratch = Buffer.alloc(4096);
  try {
    // In line mode, the terminal holds back an incomplete line; raw mode releases it.
    input.setRawMode(true);
    while (readSync(fd, scratch) > 0);
  } catch (error) {
    // EAGAIN: no more input.
    if (!hasErrorCode(error, "EAGAIN")) throw error;
  } finally {
    input.setRawMode(false);
    closeSync(fd);
  }
}
