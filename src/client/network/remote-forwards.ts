import { withCallErrors } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import type { ByteStream, ByteStreamEvents } from "../../forward/byte-stream.ts";
import { FORWARD_WINDOW_BYTES, MAX_FORWARD_CHUNK_BYTES } from "../../protocol/forward-schemas.ts";
import type { ServerNotification, ServerNotificationParams } from "../../protocol/methods.ts";
import { callOrExplain } from "../rpc/unsupported-method.ts";
import type { ReconnectingSession } from "../session/reconnecting-session.ts";

/** Consumed bytes per ack: few messages, and early enough that the peer never has to wait. */
const ACK_BYTES = FORWARD_WINDOW_BYTES / 4;

/** A listening port on the server's host. */
export interface RemoteListener {
  readonly port: number;
  close(): Promise<void>;
}

/** Ports that processes of this session listen on. */
export type ForwardedPorts = ServerNotificationParams<"forward/ports">["ports"];

/**
 * TCP streams from and to the server's host. A stream ends with its connection; listeners continue after a reconnect.
 *
 * @example
 * const stream = await client.forwards.open("localhost", 8080);
 */
export class RemoteForwards {
  readonly #session: () => ReconnectingSession;
  readonly #newId: () => string;
  readonly #streams = new Map<string, RemoteStream>();
  readonly #listeners = new Map<string, (stream: ByteStream, peer: string) => void>();
  #onPorts: ((ports: ForwardedPorts) => void) | null = null;

  /** @internal */
  constructor(session: () => ReconnectingSession, newId: () => string) {
    this.#session = session;
    this.#newId = newId;
  }

  /** Connects from the server's host. */
  async open(host: string, port: number, { signal }: CallOptions = {}): Promise<ByteStream> {
    const streamId = this.#newId();
    // Registered before the call, so that no notification right after the result is missed.
    const stream = this.#stream(streamId);
    try {
      const params = { streamId, host, port };
      await withCallErrors(
        { method: "forward/open" },
        () => callOrExplain(this.#session(), "forward/open", params, { resend: "unsent" }),
        signal,
      );
      return stream;
    } catch (error) {
      this.#streams.delete(streamId);
      // The caller aborted while the call was in flight: the stream may have been opened.
      if (signal?.aborted) void this.#send("forward/close", { streamId });
      throw error;
    }
  }

  /** Listens on the server's host; port 0 selects a free one. */
  async listen(
    host: string,
    port: number,
    onStream: (stream: ByteStream, peer: string) => void,
  ): Promise<RemoteListener> {
    const listenId = this.#newId();
    this.#listeners.set(listenId, onStream);
    try {
      const result = await withCallErrors({ method: "forward/listen" }, () =>
        callOrExplain(this.#session(), "forward/listen", { listenId, host, port }, { resend: "unsent" }),
      );
      return {
        port: result.port,
        close: async () => {
          this.#listeners.delete(listenId);
          await this.#send("forward/unlisten", { listenId });
        },
      };
    } catch (error) {
      this.#listeners.delete(listenId);
      throw error;
    }
  }

  /** Reports the ports that processes of this session listen on, now and on every change. */
  async watchPorts(onPorts: (ports: ForwardedPorts) => void): Promise<void> {
    this.#onPorts = onPorts;
    await withCallErrors({ method: "forward/watchPorts" }, () =>
      callOrExplain(this.#session(), "forward/watchPorts", { watch: true }),
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
        const onStream = this.#listeners.get(listenId);
        if (onStream) onStream(this.#stream(streamId), peer);
        else void this.#send("forward/close", { streamId });
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

  /** @internal */
  onResumed(): void {
    // The watch ended with its connection.
    if (this.#onPorts) void this.#send("forward/watchPorts", { watch: true });
  }

  #stream(streamId: string): RemoteStream {
    const stream = new RemoteStream(streamId, this.#session, () => this.#streams.delete(streamId));
    this.#streams.set(streamId, stream);
    return stream;
  }

  /** Makes a call whose failure does not matter. */
  async #send<M extends "forward/close" | "forward/unlisten" | "forward/watchPorts">(
    method: M,
    params: Parameters<ReconnectingSession["call"]>[1] & object,
  ): Promise<void> {
    await this.#session()
      .call(method, params as never)
      .catch(() => undefined);
  }
}

class RemoteStream implements ByteStream {
  readonly #streamId: string;
  readonly #session: () => ReconnectingSession;
  readonly #onClosed: () => void;
  #events: ByteStreamEvents | null = null;
  /** Events from before `open`. */
  #buffered: ((events: ByteStreamEvents) => void)[] = [];
  #unacknowledged = 0;
  #isClosed = false;

  constructor(streamId: string, session: () => ReconnectingSession, onClosed: () => void) {
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
      writes.push(this.#session().call("forward/write", params, { resend: "unsent" }));
    }
    await Promise.all(writes);
  }

  end(): void {
    if (!this.#isClosed) this.#call("forward/end");
  }

  acknowledge(bytes: number): void {
    this.#unacknowledged += bytes;
    if (this.#isClosed || this.#unacknowledged < ACK_BYTES) return;
    this.#session().ackForwarded(this.#streamId, this.#unacknowledged);
    this.#unacknowledged = 0;
  }

  close(reason: string | null): void {
    if (this.#isClosed) return;
    this.#close();
    // Without a reason both directions have ended, and the server knows that as well.
    if (reason !== null) this.#call("forward/close");
  }

  onData(chunk: Uint8Array): void {
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
    this.#session()
      .call(method, { streamId: this.#streamId }, { resend: "unsent" })
      .catch(() => undefined);
  }
}
