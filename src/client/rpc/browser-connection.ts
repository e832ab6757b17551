import { TimeoutError } from "../../async/deadline.ts";
import type { Connection, ConnectionEvent } from "../../connection/connection.ts";
import { messageEvent } from "../../connection/connection.ts";
import type { LongMessage } from "../../connection/long-message.ts";
import { encodeBase64 } from "../../protocol/base64.ts";

/** The part of the standard WebSocket that is used: a browser's, Node's own, or any other. */
export interface StandardWebSocket {
  binaryType: string;
  readonly bufferedAmount: number;
  addEventListener(type: "open" | "error", listener: () => void): void;
  addEventListener(type: "message", listener: (event: { data: unknown }) => void): void;
  addEventListener(type: "close", listener: (event: { code: number; reason: string }) => void): void;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export interface BrowserConnectOptions {
  /** `ws://…` or `wss://…`. */
  url: string;
  connectTimeoutMs: number;
  signal: AbortSignal;
  /** Default: the global WebSocket. */
  open?: ((url: string) => StandardWebSocket) | undefined;
}

/** How often a send queue is polled until it is empty: the standard WebSocket has no event for that. */
const DRAIN_POLL_MS = 10;
/** A standard close reason is at most this long. */
const MAX_REASON_BYTES = 123;

/** Connects by the standard WebSocket, the only one a browser has. Its errors give no reason. */
export async function connectStandardWebSocket(options: BrowserConnectOptions): Promise<Connection> {
  const { url, connectTimeoutMs, signal } = options;
  signal.throwIfAborted();
  const open: (url: string) => StandardWebSocket = options.open ?? ((address) => new WebSocket(address));
  const socket = open(url);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onAbort = () => reject(signal.reason);
  const timer = setTimeout(
    () => reject(new TimeoutError(`a connection to ${url}`, connectTimeoutMs)),
    connectTimeoutMs,
  );
  signal.addEventListener("abort", onAbort, { once: true });
  socket.addEventListener("open", () => resolve());
  socket.addEventListener("error", () => reject(new Error(`cannot connect to ${url}`)));
  socket.addEventListener("close", () => reject(new Error(`cannot connect to ${url}`)));
  const connection = new BrowserConnection(socket, `exec-server websocket ${url}`);
  try {
    await promise;
    return connection;
  } catch (error) {
    socket.close();
    throw error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

class BrowserConnection implements Connection {
  readonly label: string;
  onDrain: () => void = () => undefined;
  readonly #socket: StandardWebSocket;
  #onEvent: ((event: ConnectionEvent) => void) | null = null;
  /** Messages that arrived before `open` or while paused: a standard WebSocket cannot be paused. */
  #held: ConnectionEvent[] = [];
  #isPaused = true;
  #isOver = false;
  #isPolling = false;

  constructor(socket: StandardWebSocket, label: string) {
    this.#socket = socket;
    this.label = label;
    socket.binaryType = "arraybuffer";
    socket.addEventListener("message", ({ data }) =>
      this.#tell(messageEvent(textOf(data), label, "websocket ")),
    );
    socket.addEventListener("close", ({ code, reason }) =>
      this.#end(reason === "" ? (code === 1000 ? null : `websocket closed with code ${code}`) : reason),
    );
  }

  open(onEvent: (event: ConnectionEvent) => void): void {
    this.#onEvent = onEvent;
    this.resume();
  }

  send(text: string): void {
    if (this.#isOver) return;
    this.#socket.send(text);
    if (this.#socket.bufferedAmount > 0) this.#pollDrain();
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    this.send(head + encodeBase64(bytes) + tail);
  }

  async sendLong({ head, bytes, tail }: LongMessage): Promise<void> {
    this.sendChunk(head, bytes, tail);
  }

  get queuedBytes(): number {
    return this.#socket.bufferedAmount;
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    while (!this.#isPaused) {
      const event = this.#held.shift();
      if (!event) return;
      this.#onEvent?.(event);
    }
  }

  close(reason?: string): void {
    if (this.#isOver) return;
    // A page may send only 1000 and 3000-4999.
    this.#socket.close(1000, shortened(reason ?? ""));
    this.#end(null);
  }

  #tell(event: ConnectionEvent): void {
    if (this.#isOver) return;
    if (this.#isPaused || this.#held.length > 0) this.#held.push(event);
    else this.#onEvent?.(event);
  }

  #end(reason: string | null): void {
    if (this.#isOver) return;
    this.#tell({ type: "disconnected", reason });
    this.#isOver = true;
  }

  #pollDrain(): void {
    if (this.#isPolling) return;
    this.#isPolling = true;
    const poll = () => {
      if (!this.#isOver && this.#socket.bufferedAmount > 0) {
        setTimeout(poll, DRAIN_POLL_MS);
        return;
      }
      this.#isPolling = false;
      this.onDrain();
    };
    setTimeout(poll, DRAIN_POLL_MS);
  }
}

function textOf(data: unknown): string {
  if (typeof data === "string") return data;
  return data instanceof ArrayBuffer ? new TextDecoder().decode(data) : "";
}

function shortened(reason: string): string {
  const bytes = new TextEncoder().encode(reason);
  return bytes.length <= MAX_REASON_BYTES ? reason : new TextDecoder().decode(bytes.slice(0, 100));
}
