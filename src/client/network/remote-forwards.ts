import { abortable } from "../../async/abort.ts";
import { withCallErrors } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import { callback, checkArgument } from "../../exec/options/option-schema.ts";
import { checkCall } from "../../exec/options/process-checks.ts";
import type { ByteStream, ByteStreamEvents } from "../../forward/byte-stream.ts";
import type { ForwardAddress } from "../../forward/forward-address.ts";
import { FORWARD_WINDOW_BYTES, MAX_FORWARD_CHUNK_BYTES } from "../../protocol/forward-schemas.ts";
import type { ParamsOf, ServerNotification, ServerNotificationParams } from "../../protocol/methods.ts";
import { forwardAddress } from "../client-options.ts";
import { callInAnySession, callOrExplain } from "../rpc/unsupported-method.ts";
import type { ReconnectingSession } from "../session/reconnecting-session.ts";
import type { ReopeningSession } from "../session/reopening-session.ts";

/** Consumed bytes per ack: few messages, and early enough that the peer never has to wait. */
const ACK_BYTES = FORWARD_WINDOW_BYTES / 4;

/** A server that observes the window sends at most one more chunk. */
const MAX_PENDING_BYTES = FORWARD_WINDOW_BYTES + MAX_FORWARD_CHUNK_BYTES;

/** A listening port or Unix socket on the server's host. */
export interface RemoteListener {
  /** The listening port; null for a Unix socket. */
  readonly port: number | null;
  close(): Promise<void>;
}

/** Ports that processes of this session listen on. */
export type ForwardedPorts = ServerNotificationParams<"forward/ports">["ports"];

/**
 * TCP and Unix socket streams from and to the server's host. A stream ends with its connection. Listeners continue after a
 * reconnect, and listen again in the session that replaces a lost session.
 *
 * @example
 * const stream = await client.forwards.open("localhost", 8080);
 */
export class RemoteForwards {
  readonly #sessions: ReopeningSession;
  readonly #newId: () => string;
  readonly #streams = new Map<string, RemoteStream>();
  readonly #listeners = new Map<string, Listener>();
  #onPorts: ((ports: ForwardedPorts) => void) | null = null;

  /** @internal */
  constructor(sessions: ReopeningSession, newId: () => string) {
    this.#sessions = sessions;
    this.#newId = newId;
  }

  /** Connects from the server's host to a TCP address. */
  open(host: string, port: number, options?: CallOptions): Promise<ByteStream> {
    return this.openAddress({ host, port }, options);
  }

  /** Connects from the server's host to a TCP address or a Unix socket. */
  openAddress(address: ForwardAddress, options: CallOptions = {}): Promise<ByteStream> {
    const signal = options?.signal;
    const open = (session: ReconnectingSession) => this.#open(session, address, signal);
    return withCallErrors(
      { method: "forward/open" },
      () => this.#sessions.run(open, signal),
      signal,
      () => {
        checkArgument("open", "address", address, forwardAddress);
        checkCall("open", options);
      },
    );
  }

  /** Rejects if the server does not allow forwards to the address, or, without an address, any forward. */
  async check(address?: ForwardAddress): Promise<void> {
    const streamId = this.#newId();
    const check = async (session: ReconnectingSession) => {
      await callOrExplain(session, "forward/open", { streamId, ...address, check: true }, { isMovable: true });
      // An older server ignores `check` and opens a stream.
      await sendQuietly(session, "forward/close", { streamId });
    };
    await withCallErrors(
      { method: "forward/open" },
      () => this.#sessions.run(check),
      undefined,
      () => {
        if (address !== undefined) checkArgument("check", "address", address, forwardAddress);
      },
    );
  }

  async #open(
    session: ReconnectingSession,
    target: ForwardAddress,
    signal: AbortSignal | undefined,
  ): Promise<ByteStream> {
    const streamId = this.#newId();
    // Registered before the call, so that no notification right after the result is missed.
    const stream = this.#stream(streamId, session);
    try {
      const params = { streamId, ...target };
      await abortable(callOrExplain(session, "forward/open", params, { resend: "unsent", isMovable: true }), signal);
      return stream;
    } catch (error) {
      this.#streams.delete(streamId);
      // The caller aborted while the call was in flight: the stream may have been opened.
      if (signal?.aborted) void sendQuietly(session, "forward/close", { streamId });
      throw error;
    }
  }

  /**
   * Listens on a port of the server's host, of which 0 selects a free one, or on a Unix socket. `onFailed` gets the error if
   * it cannot listen again in a new session.
   */
  listenAddress(
    address: ForwardAddress,
    onStream: (stream: ByteStream, peer: string) => void,
    onFailed: (error: unknown) => void = () => undefined,
  ): Promise<RemoteListener> {
    const listen = (session: ReconnectingSession) => {
      return this.#listen(session, { address, onStream, onFailed, state: "opening" });
    };
    return withCallErrors(
      { method: "forward/listen" },
      () => this.#sessions.run(listen),
      undefined,
      () => {
        checkArgument("listen", "address", address, forwardAddress);
        checkArgument("listen", "onStream", onStream, callback);
        checkArgument("listen", "onFailed", onFailed, callback);
      },
    );
  }

  async #listen(session: ReconnectingSession, listener: Listener): Promise<RemoteListener> {
    const listenId = this.#newId();
    const { address } = listener;
    this.#listeners.set(listenId, listener);
    try {
      const params = { listenId, ...address };
      const { port = null } = await callOrExplain(session, "forward/listen", params, {
        resend: "unsent",
        isMovable: true,
      });
      listener.state = "open";
      // Keeps the port that the server selected.
      if (!("path" in address) && port !== null) listener.address = { ...address, port };
      return {
        port,
        close: async () => {
          const isOpen = listener.state === "open";
          this.#listeners.delete(listenId);
          if (isOpen) await sendQuietly(this.#sessions.current, "forward/unlisten", { listenId });
        },
      };
    } catch (error) {
      this.#listeners.delete(listenId);
      throw error;
    }
  }

  /** Listens again in a new session, at the same address. */
  async #listenAgain(listenId: string, listener: Listener): Promise<void> {
    const { current } = this.#sessions;
    listener.state = "opening";
    try {
      await callOrExplain(current, "forward/listen", { listenId, ...listener.address }, { resend: "unsent" });
      listener.state = "open";
      // Closed meanwhile.
      if (!this.#listeners.has(listenId)) await sendQuietly(current, "forward/unlisten", { listenId });
    } catch (error) {
      listener.state = "lost";
      if (!current.isDisconnected && this.#listeners.delete(listenId)) listener.onFailed(error);
    }
  }

  /** Reports the ports that processes of this session listen on, now and on every change. */
  async watchPorts(onPorts: (ports: ForwardedPorts) => void): Promise<void> {
    checkArgument("watchPorts", "onPorts", onPorts, callback);
    this.#onPorts = onPorts;
    await withCallErrors({ method: "forward/watchPorts" }, () =>
      callInAnySession(this.#sessions, "forward/watchPorts", { watch: true }),
    );
  }

  /** @internal */
  onNotification(notification: ServerNotification): void {
    switch (notification.method) {
      case "forward/data":
        this.#streams.get(notification.params.streamId)?.onData(notification.params.chunk);
        return;
      case "forward/ended":
        this.#streams.get(notification.params.streamId)?.onEnd();
        return;
      case "forward/closed":
        this.#streams.get(notification.params.streamId)?.onConnectionLost(notification.params.reason ?? null);
        return;
      case "forward/accepted": {
        const { listenId, streamId, peer } = notification.params;
        const onStream = this.#listeners.get(listenId)?.onStream;
        const { current } = this.#sessions;
        if (onStream) onStream(this.#stream(streamId, current), peer);
        else void sendQuietly(current, "forward/close", { streamId });
        return;
      }
      case "forward/ports":
        this.#onPorts?.(notification.params.ports);
        return;
      default:
        return;
    }
  }

  /** Streams end with their connection. */
  onDisconnect(reason: string | null): void {
    for (const stream of [...this.#streams.values()]) stream.onConnectionLost(reason ?? "the connection was lost");
  }

  /** The watch of the ports ended with its connection, and the listeners of a lost session with that session. */
  onConnected(): void {
    for (const [listenId, listener] of this.#listeners)
      if (listener.state === "lost") void this.#listenAgain(listenId, listener);
    if (this.#onPorts) void sendQuietly(this.#sessions.current, "forward/watchPorts", { watch: true });
  }

  /** Listeners and processes end with their session. */
  onLost(reason: string | null): void {
    this.onDisconnect(reason);
    this.#onPorts?.([]);
    const open = [...this.#listeners.values()].filter(({ state }) => state === "open");
    for (const listener of open) listener.state = "lost";
    // Opens a new session for the listeners. If that fails, the next call of the client opens it.
    if (open.length > 0)
      void Promise.resolve().then(() => this.#sessions.run(async () => undefined).catch(() => undefined));
  }

  #stream(streamId: string, session: ReconnectingSession): RemoteStream {
    const stream = new RemoteStream(streamId, session, () => this.#streams.delete(streamId));
    this.#streams.set(streamId, stream);
    return stream;
  }
}

/** A listener of this client. */
interface Listener {
  address: ForwardAddress;
  readonly onStream: (stream: ByteStream, peer: string) => void;
  readonly onFailed: (error: unknown) => void;
  /** `lost` with its session, until a new session is open. */
  state: "opening" | "open" | "lost";
}

/** Makes a call whose failure does not matter. */
async function sendQuietly<M extends "forward/close" | "forward/unlisten" | "forward/watchPorts">(
  session: ReconnectingSession,
  method: M,
  params: ParamsOf<M>,
): Promise<void> {
  await session.call(method, params).catch(() => undefined);
}

class RemoteStream implements ByteStream {
  readonly #streamId: string;
  readonly #session: ReconnectingSession;
  readonly #onClosed: () => void;
  #events: ByteStreamEvents | null = null;
  /** Events from before `open`. */
  #buffered: ((events: ByteStreamEvents) => void)[] = [];
  #unacknowledged = 0;
  /** Received bytes that are not processed yet. */
  #pendingBytes = 0;
  #isClosed = false;

  constructor(streamId: string, session: ReconnectingSession, onClosed: () => void) {
    this.#streamId = streamId;
    this.#session = session;
    this.#onClosed = onClosed;
  }

  open(events: ByteStreamEvents): void {
    this.#events = events;
    const buffered = this.#buffered;
    this.#buffered = [];
    for (const event of buffered) event(events);
  }

  async write(chunk: Uint8Array): Promise<void> {
    const writes: Promise<unknown>[] = [];
    for (let at = 0; at < chunk.length; at += MAX_FORWARD_CHUNK_BYTES) {
      const block = chunk.subarray(at, at + MAX_FORWARD_CHUNK_BYTES);
      const params = { streamId: this.#streamId, chunk: block };
      writes.push(this.#session.call("forward/write", params, { resend: "unsent" }));
    }
    await Promise.all(writes);
  }

  end(): void {
    if (!this.#isClosed) this.#call("forward/end");
  }

  acknowledge(bytes: number): void {
    this.#unacknowledged += bytes;
    this.#pendingBytes -= bytes;
    if (this.#isClosed || this.#unacknowledged < ACK_BYTES) return;
    this.#session.ackForwarded(this.#streamId, this.#unacknowledged);
    this.#unacknowledged = 0;
  }

  close(reason: string | null): void {
    if (this.#isClosed) return;
    this.#close();
    // Without a reason both directions have ended, and the server knows that as well.
    if (reason !== null) this.#call("forward/close");
  }

  onData(chunk: Uint8Array): void {
    this.#pendingBytes += chunk.length;
    if (this.#pendingBytes > MAX_PENDING_BYTES) {
      this.#call("forward/close");
      this.onConnectionLost("the server sent more than the window");
      return;
    }
    this.#emit((events) => events.data(chunk));
  }

  onEnd(): void {
    this.#emit((events) => events.end());
  }

  onConnectionLost(reason: string | null): void {
    if (this.#isClosed) return;
    this.#close();
    this.#emit((events) => events.close(reason));
  }

  #emit(event: (events: ByteStreamEvents) => void): void {
    if (this.#events) event(this.#events);
    else this.#buffered.push(event);
  }

  #close(): void {
    this.#isClosed = true;
    this.#onClosed();
  }

  #call(method: "forward/end" | "forward/close"): void {
    // A failure is ignored: the server may have closed the stream meanwhile.
    this.#session.call(method, { streamId: this.#streamId }, { resend: "unsent" }).catch(() => undefined);
  }
}
