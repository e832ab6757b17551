import type { Readable, Writable } from "node:stream";
import { type ByteCodec, base64Length, nodeByteCodec } from "./byte-codec.ts";
import { ChunkedSender } from "./chunked-sender.ts";
import type { BytesDecoder, ChunkedMessage, Connection, ConnectionEvent } from "./connection.ts";
import { toConnectionEvent, toParsedEvent } from "./connection.ts";
import { FrameOpening } from "./frame-socket.ts";
import { MessageOrder, PARSED_ASIDE_BYTES } from "./message-order.ts";

/** Default maximum message size. A longer message closes the connection, so that a peer cannot exhaust memory. */
export const DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

export interface LineConnectionOptions {
  label: string;
  maxMessageBytes?: number | undefined;
  codec?: ByteCodec | undefined;
  /** Queue limit: with more queued bytes, the connection stops reading. */
  maxQueuedBytes?: number | undefined;
}

const NEWLINE = 10;

/** One message per line over a pair of byte streams, for example stdin and stdout of a process. */
export class LineConnection implements Connection {
  readonly label: string;
  onDrain: () => void = () => undefined;
  readonly #input: Readable;
  readonly #output: Writable;
  readonly #maxMessageBytes: number;
  readonly #codec: ByteCodec;
  readonly #maxQueuedBytes: number;
  readonly #parts: ChunkedSender;
  readonly #order = new MessageOrder();
  #isPaused = false;
  #isFull = false;
  #onEvent: ((event: ConnectionEvent) => void) | null = null;
  #decodeBytes: BytesDecoder | undefined;
  /** Start of a line that is not complete yet. */
  #partial: Buffer[] = [];
  #partialBytes = 0;
  #isClosed = false;

  constructor(input: Readable, output: Writable, options: LineConnectionOptions) {
    this.label = options.label;
    this.#input = input;
    this.#output = output;
    this.#maxMessageBytes = options.maxMessageBytes ?? DEFAULT_MAX_MESSAGE_BYTES;
    this.#codec = options.codec ?? nodeByteCodec;
    this.#maxQueuedBytes = options.maxQueuedBytes ?? Number.POSITIVE_INFINITY;
    this.#parts = new ChunkedSender({
      get queuedBytes() {
        return output.writableLength;
      },
      sendPart: (head, bytes, tail, opening) => {
        const end = opening === FrameOpening.last ? `${tail}\n` : tail;
        if (!this.#isClosed) output.write(this.#encodeChunk(head, bytes, end));
      },
      setPaused: () => undefined,
      fail: (reason) => this.#close(reason),
    });
  }

  open(onEvent: (event: ConnectionEvent) => void, decodeBytes?: BytesDecoder): void {
    this.#onEvent = onEvent;
    this.#decodeBytes = decodeBytes;
    this.#input.on("data", (chunk: Buffer) => this.#receive(chunk));
    this.#input.on("end", () => {
      // A last line without its newline is still a message.
      this.#receiveLine(Buffer.concat(this.#partial));
      this.#endInOrder();
    });
    this.#input.on("close", () => this.#endInOrder());
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
    if (this.#isClosed) return;
    const line = this.#encodeChunk(head, bytes, `${tail}\n`);
    this.#send(line.length, () => this.#output.write(line));
  }

  #encodeChunk(head: string, bytes: Uint8Array, tail: string): Buffer {
    const headBytes = Buffer.byteLength(head);
    const encoded = Buffer.allocUnsafe(headBytes + base64Length(bytes.length) + tail.length);
    encoded.write(head, 0);
    const end = headBytes + this.#codec.base64Encode(bytes, encoded, headBytes);
    encoded.write(tail, end, "latin1");
    return encoded;
  }

  async sendChunked(message: ChunkedMessage): Promise<void> {
    if (!this.#isClosed) await this.#parts.send(message);
  }

  #send(bytes: number, send: () => void): void {
    if (this.#isClosed) return;
    if (!this.#parts.isBusy) send();
    else
      this.#parts.enqueue(bytes, () => {
        if (!this.#isClosed) send();
      });
    if (this.#isFull || this.queuedBytes <= this.#maxQueuedBytes) return;
    this.#isFull = true;
    this.#input.pause();
  }

  #drained(): void {
    this.#parts.sendNext();
    if (this.#isFull && this.queuedBytes <= this.#maxQueuedBytes) {
      this.#isFull = false;
      if (!this.#isPaused && !this.#order.isBusy) this.#input.resume();
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
    if (!this.#isFull && !this.#order.isBusy) this.#input.resume();
  }

  close(): void {
    this.#close(null);
  }

  #close(reason: string | null): void {
    if (this.#isClosed) return;
    this.#output.end();
    this.#end(reason);
    this.#input.destroy();
  }

  #receive(chunk: Buffer): void {
    let from = 0;
    while (!this.#isClosed) {
      const newline = chunk.indexOf(NEWLINE, from);
      if (newline < 0) break;
      const rest = chunk.subarray(from, newline);
      const line = this.#partial.length === 0 ? rest : Buffer.concat([...this.#partial, rest]);
      this.#partial = [];
      this.#partialBytes = 0;
      from = newline + 1;
      this.#receiveLine(line);
    }
    if (from < chunk.length && !this.#isClosed) {
      this.#partial.push(chunk.subarray(from));
      this.#partialBytes += chunk.length - from;
      if (this.#partialBytes > this.#maxMessageBytes) this.#closeTooLong();
    }
  }

  #receiveLine(line: Buffer): void {
    if (this.#isClosed) return;
    if (line.length > this.#maxMessageBytes) {
      this.#closeTooLong();
      return;
    }
    this.#order.run(() => this.#message(line));
  }

  #message(line: Buffer): void {
    if (this.#isClosed || this.#decodeBytes?.(line)) return;
    if (line.length > PARSED_ASIDE_BYTES && this.#codec.parseLarge) {
      this.#input.pause();
      void this.#order.runParsed(this.#codec.parseLarge(line), (parsed) => {
        if (!this.#isPaused && !this.#isFull) this.#input.resume();
        const problem = { ok: false as const, problem: "it is not UTF-8" };
        if (!this.#isClosed) this.#onEvent?.(toParsedEvent(parsed ?? problem, this.label));
      });
      return;
    }
    const text = line.toString("utf8");
    if (text.trim() !== "") this.#onEvent?.(toConnectionEvent(text, this.label));
  }

  /** Delays `disconnected`, so that responses that are ready can still be sent. */
  #endInOrder(): void {
    this.#order.run(() => void setImmediate(() => this.#end(null)));
  }

  #closeTooLong(): void {
    this.#end(`message from ${this.label} is longer than ${this.#maxMessageBytes} bytes`);
    this.#input.destroy();
  }

  #end(reason: string | null): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#partial = [];
    this.#parts.discard();
    this.#onEvent?.({ type: "disconnected", reason });
  }
}
