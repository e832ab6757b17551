import type { Readable, Writable } from "node:stream";
import { type ByteCodec, base64Length, plainByteCodec } from "./byte-codec.ts";
import { PartedSender } from "./chunked-sender.ts";
import type { Connection, ConnectionEvent, TakeBytes } from "./connection.ts";
import { messageEvent } from "./connection.ts";
import type { LongMessage } from "./long-message.ts";

/** A line longer than this ends the connection: one peer must not make the other grow without bound. */
export const DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

export interface LineConnectionOptions {
  label: string;
  maxMessageBytes?: number | undefined;
  codec?: ByteCodec | undefined;
  /** While more than this waits to be written, nothing is read. */
  maxQueuedBytes?: number | undefined;
}

const NEWLINE = 10;

/** One message a line over a pair of byte streams, such as a process's stdin and stdout. */
export class LineConnection implements Connection {
  readonly label: string;
  onDrain: () => void = () => undefined;
  readonly #input: Readable;
  readonly #output: Writable;
  readonly #maxMessageBytes: number;
  readonly #codec: ByteCodec;
  readonly #maxQueuedBytes: number;
  readonly #parts: PartedSender;
  #isPaused = false;
  #isFull = false;
  #onEvent: ((event: ConnectionEvent) => void) | null = null;
  #takeBytes: TakeBytes | undefined;
  /** The beginning of a line whose end has not come yet. */
  #partial: Buffer[] = [];
  #partialBytes = 0;
  #over = false;

  constructor(input: Readable, output: Writable, options: LineConnectionOptions) {
    this.label = options.label;
    this.#input = input;
    this.#output = output;
    this.#maxMessageBytes = options.maxMessageBytes ?? DEFAULT_MAX_MESSAGE_BYTES;
    this.#codec = options.codec ?? plainByteCodec;
    this.#maxQueuedBytes = options.maxQueuedBytes ?? Number.POSITIVE_INFINITY;
    this.#parts = new PartedSender(
      {
        get queuedBytes() {
          return output.writableLength;
        },
        sendPart: (part, { isLast }) => {
          if (this.#over) return;
          output.write(part);
          if (isLast) output.write("\n");
        },
        held: () => undefined,
      },
      this.#codec,
    );
  }

  open(onEvent: (event: ConnectionEvent) => void, takeBytes?: TakeBytes): void {
    this.#onEvent = onEvent;
    this.#takeBytes = takeBytes;
    this.#input.on("data", (chunk: Buffer) => this.#take(chunk));
    this.#input.on("end", () => {
      // A last line without its newline is still a message.
      this.#line(Buffer.concat(this.#partial));
      // What can be answered at once still is, before the end is told.
      setImmediate(() => this.#end(null));
    });
    this.#input.on("close", () => setImmediate(() => this.#end(null)));
    this.#input.on("error", (error) =>
      this.#end(`failed to read JSON-RPC message from ${this.label}: ${error.message}`),
    );
    this.#output.on("error", (error) =>
      this.#end(`failed to write JSON-RPC message to ${this.label}: ${error.message}`),
    );
    this.#output.on("drain", () => this.#drained());
  }

  send(text: string): void {
    this.#send(text.length, () => this.#output.write(`${text}\n`));
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    if (this.#over) return;
    const headBytes = Buffer.byteLength(head);
    const frame = Buffer.allocUnsafe(headBytes + base64Length(bytes.length) + tail.length + 1);
    frame.write(head, 0);
    let at = headBytes;
    at += this.#codec.base64Encode(bytes, frame, at);
    at += frame.write(tail, at, "latin1");
    frame[at] = NEWLINE;
    this.#send(frame.length, () => this.#output.write(frame));
  }

  async sendLong(message: LongMessage): Promise<void> {
    if (!this.#over) await this.#parts.send(message);
  }

  #send(bytes: number, send: () => void): void {
    if (this.#over) return;
    const sendIfOpen = () => {
      if (!this.#over) send();
    };
    if (this.#parts.isBusy) this.#parts.wait(bytes, sendIfOpen);
    else send();
    if (this.#isFull || this.queuedBytes <= this.#maxQueuedBytes) return;
    this.#isFull = true;
    this.#input.pause();
  }

  #drained(): void {
    this.#parts.proceed();
    if (this.#isFull && this.queuedBytes <= this.#maxQueuedBytes) {
      this.#isFull = false;
      if (!this.#isPaused) this.#input.resume();
    }
    this.onDrain();
  }

  get queuedBytes(): number {
    return this.#output.writableLength + this.#parts.waitingBytes;
  }

  pause(): void {
    this.#isPaused = true;
    this.#input.pause();
  }

  resume(): void {
    this.#isPaused = false;
    if (!this.#isFull) this.#input.resume();
  }

  close(): void {
    if (this.#over) return;
    this.#output.end();
    this.#end(null);
    this.#input.destroy();
  }

  #take(chunk: Buffer): void {
    let from = 0;
    while (!this.#over) {
      const newline = chunk.indexOf(NEWLINE, from);
      if (newline < 0) break;
      const rest = chunk.subarray(from, newline);
      const line = this.#partial.length === 0 ? rest : Buffer.concat([...this.#partial, rest]);
      this.#partial = [];
      this.#partialBytes = 0;
      from = newline + 1;
      this.#line(line);
    }
    if (from < chunk.length && !this.#over) {
      this.#partial.push(chunk.subarray(from));
      this.#partialBytes += chunk.length - from;
      if (this.#partialBytes > this.#maxMessageBytes) this.#tooLong();
    }
  }

  #line(line: Buffer): void {
    if (this.#over) return;
    if (line.length > this.#maxMessageBytes) {
      this.#tooLong();
      return;
    }
    if (this.#takeBytes?.(line)) return;
    const text = line.toString("utf8");
    if (text.trim() !== "") this.#onEvent?.(messageEvent(text, this.label));
  }

  #tooLong(): void {
    this.#end(`message from ${this.label} is longer than ${this.#maxMessageBytes} bytes`);
    this.#input.destroy();
  }

  #end(reason: string | null): void {
    if (this.#over) return;
    this.#over = true;
    this.#partial = [];
    this.#parts.abandon();
    this.#onEvent?.({ type: "disconnected", reason });
  }
}
