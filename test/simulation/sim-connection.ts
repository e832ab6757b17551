import { isObject } from "../../src/base/type-guards.ts";
import {
  type BytesDecoder,
  type ChunkedMessage,
  type Connection,
  type ConnectionEvent,
  sendAsText,
  toConnectionEvent,
} from "../../src/connection/connection.ts";
import { decodeBase64, encodeBase64 } from "../../src/protocol/base64.ts";
import { parseMessage } from "../../src/protocol/envelope.ts";

import type { SimDirection } from "./sim-direction.ts";

export interface EndOptions {
  label: string;
  /** Weight of one byte, so that little traffic fills a queue. */
  byteWeight: number;
  /** Decodes the same messages as the addon: bulk input on a server, output on a client. */
  readsBytes: boolean;
  onEnd: () => void;
}

/** One end of a simulated connection. */
export class SimConnection implements Connection {
  readonly label: string;
  onDrain: () => void = () => undefined;
  readonly #options: EndOptions;
  /** Outgoing direction. Incoming messages arrive from the peer's outgoing direction. */
  #out: SimDirection | null = null;
  #in: SimDirection | null = null;
  #onEvent: ((event: ConnectionEvent) => void) | null = null;
  #decodeBytes: BytesDecoder | undefined;
  #isPaused = false;
  #isOver = false;

  constructor(options: EndOptions) {
    this.label = options.label;
    this.#options = options;
  }

  join(out: SimDirection, incoming: SimDirection): void {
    this.#out = out;
    this.#in = incoming;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Whether received messages can be delivered. */
  get takesInput(): boolean {
    return this.#onEvent !== null && !this.#isPaused;
  }

  open(onEvent: (event: ConnectionEvent) => void, decodeBytes?: BytesDecoder): void {
    this.#onEvent = onEvent;
    this.#decodeBytes = decodeBytes;
    this.#in?.wake();
  }

  send(text: string): void {
    if (!this.#isOver) this.#out?.send(text);
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    this.send(head + encodeBase64(bytes) + tail);
  }

  sendChunked(message: ChunkedMessage): Promise<void> {
    return sendAsText(this, message);
  }

  get queuedBytes(): number {
    return (this.#out?.queuedBytes ?? 0) * this.#options.byteWeight;
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#in?.wake();
  }

  close(reason?: string): void {
    if (this.#isOver) return;
    this.#out?.end(reason ?? null);
    this.ended(null);
  }

  /** Called when the system reports the end of the connection. */
  ended(reason: string | null): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#in?.kill();
    // Never within the call of `close`.
    queueMicrotask(() => {
      this.#onEvent?.({ type: "disconnected", reason });
      this.#options.onEnd();
    });
  }

  receive(text: string): void {
    if (this.#isOver || !this.#onEvent) return;
    if (this.#options.readsBytes) {
      if (this.#decodeBytes?.(Buffer.from(text))) return;
      const write = bulkWrite(text);
      if (write) {
        this.#onEvent(write);
        return;
      }
    }
    this.#onEvent(toConnectionEvent(text, this.label));
  }
}

function bulkWrite(text: string): ConnectionEvent | null {
  if (!text.includes('"method":"process/write"')) return null;
  const parsed = parseMessage(text);
  if (!parsed.ok || parsed.message.type !== "request" || !isObject(parsed.message.params)) return null;
  const { processId, writeId, chunk } = parsed.message.params;
  if (typeof processId !== "string" || typeof writeId !== "string" || typeof chunk !== "string") return null;
  const bytes = decodeBase64(chunk);
  if (!bytes.ok) return null;
  return {
    type: "message",
    message: { ...parsed.message, params: { processId, writeId, chunk: bytes.bytes } },
  };
}
