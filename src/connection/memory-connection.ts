import { encodeBase64 } from "../protocol/base64.ts";
import type { Connection, ConnectionEvent } from "./connection.ts";
import { messageEvent } from "./connection.ts";
import type { LongMessage } from "./long-message.ts";

/** Two ends joined in memory, speaking the same text as any other transport. Messages arrive on a later microtask. */
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
  #paused = false;
  #scheduled = false;
  #over = false;

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
    if (!this.#over) this.#peer?.receive(text);
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    this.send(head + encodeBase64(bytes) + tail);
  }

  async sendLong({ head, bytes, tail }: LongMessage): Promise<void> {
    this.sendChunk(head, bytes, tail);
  }

  get queuedBytes(): number {
    return this.#peer?.waitingBytes ?? 0;
  }

  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#schedule();
  }

  close(reason?: string): void {
    if (this.#over) return;
    this.#peer?.receive({ disconnected: reason ?? null });
    // What was still to come no longer matters to the side that closes, paused or not.
    this.#inbox = [];
    this.#waitingBytes = 0;
    this.#paused = false;
    this.receive({ disconnected: null });
  }

  receive(entry: string | { disconnected: string | null }): void {
    if (this.#over) return;
    this.#inbox.push(entry);
    if (typeof entry === "string") this.#waitingBytes += entry.length;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled || !this.#onEvent) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      this.#deliver();
    });
  }

  #deliver(): void {
    while (!this.#paused && !this.#over) {
      const entry = this.#inbox.shift();
      if (entry === undefined) break;
      if (typeof entry === "string") {
        this.#waitingBytes -= entry.length;
        this.#onEvent?.(messageEvent(entry, this.label));
      } else {
        this.#over = true;
        this.#onEvent?.({ type: "disconnected", reason: entry.disconnected });
      }
    }
    if (this.#inbox.length === 0) this.#peer?.onDrain();
  }
}
