import { TimeoutError } from "../../async/deadline.ts";
import type { ChunkedMessage, Connection, ConnectionEvent } from "../../connection/connection.ts";
import { sendAsText, toConnectionEvent } from "../../connection/connection.ts";
import { encodeBase64 } from "../../protocol/base64.ts";

/** The part of the standard WebSocket interface that the client uses, from a browser, Node or a library. */
export interface WebSocketLike {
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
  open?: ((url: string) => WebSocketLike) | undefined;
}

/** Polling interval until the send queue is empty: the standard WebSocket has no drain event. */
const DRAIN_POLL_MS = 10;
/** Maximum bytes of a close reason in the WebSocket standard. */
const MAX_REASON_BYTES = 123;

/** Connects with the standard WebSocket, the only transport in a browser. Its errors contain no reason. */
export async function connectStandardWebSocket(options: BrowserConnectOptions): Promise<Connection> {
  const { url, connectTimeoutMs, signal } = options;
  signal.throwIfAborted();
  const open: (url: string) => WebSocketLike = options.open ?? ((address) => new WebSocket(address));
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
  readonly #socket: WebSocketLike;
  #onEvent: ((event: ConnectionEvent) => void) | null = null;
  /** Messages that arrived before `open` or while paused: a standard WebSocket cannot be paused. */
  #bufferedEvents: ConnectionEvent[] = [];
  #isPaused = true;
  #isClosed = false;
  #isPolling = false;

  constructor(socket: WebSocketLike, label: string) {
    this.#socket = socket;
    this.label = label;
    socket.binaryType = "arraybuffer";
    socket.addEventListener("message", ({ data }) => this.#emit(toConnectionEvent(toText(data), label, "websocket ")));
    socket.addEventListener("close", ({ code, reason }) =>
      this.#end(reason === "" ? (code === 1000 ? null : `websocket closed with code ${code}`) : reason),
    );
  }

  open(onEvent: (event: ConnectionEvent) => void): void {
    this.#onEvent = onEvent;
    this.resume();
  }

  send(text: string): void {
    if (this.#isClosed) return;
    this.#socket.send(text);
    if (this.#socket.bufferedAmount > 0) this.#pollDrain();
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    this.send(head + encodeBase64(bytes) + tail);
  }

  sendChunked(message: ChunkedMessage): Promise<void> {
    return sendAsText(this, message);
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
      const event = this.#bufferedEvents.shift();
      if (!event) return;
      this.#onEvent?.(event);
    }
  }

  close(reason?: string): void {
    if (this.#isClosed) return;
    // A browser may send only the codes 1000 and 3000-4999.
    this.#socket.close(1000, truncateReason(reason ?? ""));
    this.#end(null);
  }

  #emit(event: ConnectionEvent): void {
    if (this.#isClosed) return;
    if (this.#isPaused || this.#bufferedEvents.length > 0) this.#bufferedEvents.push(event);
    else this.#onEvent?.(event);
  }

  #end(reason: string | null): void {
    if (this.#isClosed) return;
    this.#emit({ type: "disconnected", reason });
    this.#isClosed = true;
  }

  #pollDrain(): void {
    if (this.#isPolling) return;
    this.#isPolling = true;
    const poll = () => {
      if (!this.#isClosed && this.#socket.bufferedAmount > 0) {
        setTimeout(poll, DRAIN_POLL_MS);
        return;
      }
      this.#isPolling = false;
      this.onDrain();
    };
    setTimeout(poll, DRAIN_POLL_MS);
  }
}

function toText(data: unknown): string {
  if (typeof data === "string") return data;
  return data instanceof ArrayBuffer ? new TextDecoder().decode(data) : "";
}

function truncateReason(reason: string): string {
  const bytes = new TextEncoder().encode(reason);
  return bytes.length <= MAX_REASON_BYTES ? reason : new TextDecoder().decode(bytes.slice(0, 100));
}
