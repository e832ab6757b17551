import type { ChunkedMessage, Connection, ConnectionEvent } from "../../../src/connection/connection.ts";
import { sendAsText, toConnectionEvent } from "../../../src/connection/connection.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";

/** Creates two connected in-memory connections. They exchange JSON text, which arrives on a later microtask. */
export function memoryConnectionPair(): [Connection, Connection] {
  const a = new MemoryConnection("memory a");
  const b = new MemoryConnection("memory b");
  a.join(b);
  b.join(a);
  return [a, b];
}

class MemoryConnection implements Connection {
  readonly label: string;
  onDrain = () => undefined;
  #peer: MemoryConnection | null = null;
  #onEvent: ((event: ConnectionEvent) => void) | null = null;
  #inbox: (string | { disconnected: string | null })[] = [];
  #waitingBytes = 0;
  #isPaused = false;
  #isScheduled = false;
  #isClosed = false;

  constructor(label: string) {
    this.label = label;
  }

  join(peer: MemoryConnection): void {
    this.#peer = peer;
  }

  open(onEvent: (event: ConnectionEvent) => void): void {
    this.#onEvent = onEvent;
    this.#schedule();
  }

  send(text: string): void {
    if (!this.#isClosed) this.#peer?.receive(text);
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    this.send(head + encodeBase64(bytes) + tail);
  }

  sendChunked(message: ChunkedMessage): Promise<void> {
    return sendAsText(this, message);
  }

  get queuedBytes(): number {
    return this.#peer?.waitingBytes ?? 0;
  }

  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#schedule();
  }

  close(reason?: string): void {
    if (this.#isClosed) return;
    this.#peer?.receive({ disconnected: reason ?? null });
    // The closing side discards undelivered messages, even if it is paused.
    this.#inbox = [];
    this.#waitingBytes = 0;
    this.#isPaused = false;
    this.receive({ disconnected: null });
  }

  receive(entry: string | { disconnected: string | null }): void {
    if (this.#isClosed) return;
    this.#inbox.push(entry);
    if (typeof entry === "string") this.#waitingBytes += entry.length;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled || !this.#onEvent) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#deliver();
    });
  }

  #deliver(): void {
    while (!this.#isPaused && !this.#isClosed) {
      const entry = this.#inbox.shift();
      if (entry === undefined) break;
      if (typeof entry === "string") {
        this.#waitingBytes -= entry.length;
        this.#onEvent?.(toConnectionEvent(entry, this.label));
      } else {
        this.#isClosed = true;
        this.#onEvent?.({ type: "disconnected", reason: entry.disconnected });
      }
    }
    if (this.#inbox.length === 0) this.#peer?.onDrain();
  }
}
