import { asked } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import type { ByteStream, ByteStreamEvents } from "../../forward/byte-stream.ts";
import { FORWARD_WINDOW_BYTES, MAX_FORWARD_CHUNK_BYTES } from "../../protocol/forward-schemas.ts";
import type { ServerNotification, ServerNotificationParams } from "../../protocol/methods.ts";
import type { Link } from "../session/reconnecting-session.ts";
import { explainedCall } from "../unsupported.ts";

/** What has been dealt with is confirmed when it is this much: seldom, and long before the other side would have to wait. */
const CONFIRM_BYTES = FORWARD_WINDOW_BYTES / 4;

/** A port of the server's machine that somebody may connect to. */
export interface RemoteListener {
  readonly port: number;
  close(): Promise<void>;
}

/** What processes of this session listen on. */
export type ForwardedPorts = ServerNotificationParams<"forward/ports">["ports"];

/**
 * TCP streams from and to the server's machine. A stream ends with its connection; listeners go on when the client has come
 * back.
 *
 * @example
 * const stream = await client.forwards.open("localhost", 8080);
 */
export class RemoteForwards {
  readonly #link: () => Link;
  readonly #newId: () => string;
  readonly #streams = new Map<string, RemoteStream>();
  readonly #listeners = new Map<string, (stream: ByteStream, peer: string) => void>();
  #onPorts: ((ports: ForwardedPorts) => void) | null = null;

  /** @internal */
  constructor(link: () => Link, newId: () => string) {
    this.#link = link;
    this.#newId = newId;
  }

  /** Connects from the server's machine. */
  async open(host: string, port: number, { signal }: CallOptions = {}): Promise<ByteStream> {
    const streamId = this.#newId();
    // Known before it is open, so that nothing told right after the answer is missed.
    const stream = this.#stream(streamId);
    try {
      const params = { streamId, host, port };
      await asked(
        { method: "forward/open" },
        () => explainedCall(this.#link(), "forward/open", params, { resend: "unsent" }),
        signal,
      );
      return stream;
    } catch (error) {
      this.#streams.delete(streamId);
      // Given up on while it was under way: it may have been opened.
      if (signal?.aborted) void this.#tell("forward/close", { streamId });
      throw error;
    }
  }

  /** Listens at the server's machine; port 0 takes a free one. */
  async listen(
    host: string,
    port: number,
    onStream: (stream: ByteStream, peer: string) => void,
  ): Promise<RemoteListener> {
    const listenId = this.#newId();
    this.#listeners.set(listenId, onStream);
    try {
      const result = await asked({ method: "forward/listen" }, () =>
        explainedCall(this.#link(), "forward/listen", { listenId, host, port }, { resend: "unsent" }),
      );
      return {
        port: result.port,
        close: async () => {
          this.#listeners.delete(listenId);
          await this.#tell("forward/unlisten", { listenId });
        },
      };
    } catch (error) {
      this.#listeners.delete(listenId);
      throw error;
    }
  }

  /** Tells the ports that processes of this session listen on, now and whenever they change. */
  async watchPorts(onPorts: (ports: ForwardedPorts) => void): Promise<void> {
    this.#onPorts = onPorts;
    await asked({ method: "forward/watchPorts" }, () =>
      explainedCall(this.#link(), "forward/watchPorts", { watch: true }),
    );
  }

  /** @internal */
  notified(notification: ServerNotification): void {
    switch (notification.method) {
      case "forward/data":
        this.#streams.get(notification.params.streamId)?.received(notification.params.chunk);
        return;
      case "forward/ended":
        this.#streams.get(notification.params.streamId)?.receivedEnd();
        return;
      case "forward/closed":
        this.#streams.get(notification.params.streamId)?.gone(notification.params.reason ?? null);
        return;
      case "forward/accepted": {
        const { listenId, streamId, peer } = notification.params;
        const onStream = this.#listeners.get(listenId);
        if (onStream) onStream(this.#stream(streamId), peer);
        else void this.#tell("forward/close", { streamId });
        return;
      }
      case "forward/ports":
        this.#onPorts?.(notification.params.ports);
        return;
      default:
        // Everything else is for others.
        return;
    }
  }

  /** Streams end with their connection. */
  lost(reason: string | null): void {
    for (const stream of [...this.#streams.values()]) stream.gone(reason ?? "the connection was lost");
  }

  /** @internal */
  resumed(): void {
    // What a connection was asked to watch ended with it.
    if (this.#onPorts) void this.#tell("forward/watchPorts", { watch: true });
  }

  #stream(streamId: string): RemoteStream {
    const stream = new RemoteStream(streamId, this.#link, () => this.#streams.delete(streamId));
    this.#streams.set(streamId, stream);
    return stream;
  }

  /** Something that may fail only where it does not matter any more. */
  async #tell<M extends "forward/close" | "forward/unlisten" | "forward/watchPorts">(
    method: M,
    params: Parameters<Link["call"]>[1] & object,
  ): Promise<void> {
    await this.#link()
      .call(method, params as never)
      .catch(() => undefined);
  }
}

class RemoteStream implements ByteStream {
  readonly #streamId: string;
  readonly #link: () => Link;
  readonly #onClosed: () => void;
  #events: ByteStreamEvents | null = null;
  /** What came before somebody listened. */
  #early: ((events: ByteStreamEvents) => void)[] = [];
  #unconfirmed = 0;
  #isOver = false;

  constructor(streamId: string, link: () => Link, onClosed: () => void) {
    this.#streamId = streamId;
    this.#link = link;
    this.#onClosed = onClosed;
  }

  open(events: ByteStreamEvents): void {
    this.#events = events;
    const early = this.#early;
    this.#early = [];
    for (const tell of early) tell(events);
  }

  async write(chunk: Uint8Array): Promise<void> {
    const pieces: Promise<unknown>[] = [];
    for (let at = 0; at < chunk.length; at += MAX_FORWARD_CHUNK_BYTES) {
      const piece = chunk.subarray(at, at + MAX_FORWARD_CHUNK_BYTES);
      const params = { streamId: this.#streamId, chunk: piece };
      pieces.push(this.#link().call("forward/write", params, { resend: "unsent" }));
    }
    await Promise.all(pieces);
  }

  end(): void {
    if (!this.#isOver) this.#ask("forward/end");
  }

  taken(bytes: number): void {
    this.#unconfirmed += bytes;
    if (this.#isOver || this.#unconfirmed < CONFIRM_BYTES) return;
    this.#link().confirmForwarded(this.#streamId, this.#unconfirmed);
    this.#unconfirmed = 0;
  }

  close(reason: string | null): void {
    if (this.#isOver) return;
    this.#over();
    // Both directions have ended by themselves: the server knows that as well.
    if (reason !== null) this.#ask("forward/close");
  }

  received(chunk: Uint8Array): void {
    this.#tell((events) => events.data(chunk));
  }

  receivedEnd(): void {
    this.#tell((events) => events.ended());
  }

  gone(reason: string | null): void {
    if (this.#isOver) return;
    this.#over();
    this.#tell((events) => events.closed(reason));
  }

  #tell(event: (events: ByteStreamEvents) => void): void {
    if (this.#events) event(this.#events);
    else this.#early.push(event);
  }

  #over(): void {
    this.#isOver = true;
    this.#onClosed();
  }

  #ask(method: "forward/end" | "forward/close"): void {
    // A stream that the server has closed meanwhile needs neither.
    this.#link()
      .call(method, { streamId: this.#streamId }, { resend: "unsent" })
      .catch(() => undefined);
  }
}
