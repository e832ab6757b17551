import { type Clock, systemClock } from "../async/clock.ts";
import { concatBytes } from "../base/bytes.ts";
import { errorMessage } from "../base/error-message.ts";
import { type ErrorReason, ExecServerError } from "../protocol/exec-server-error.ts";
import { type ByteStream, type ByteStreamEvents, joinStreams } from "./byte-stream.ts";
import { parseGreeting, parseRequest, SocksReply, type SocksReplyCode, type SocksStep, socksReply } from "./socks5.ts";

/** Maximum time of a handshake, so that idle clients do not hold connections. */
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** Maximum clients within their handshake. Further ones are closed. */
const MAX_HANDSHAKES = 256;

export interface SocksProxyOptions {
  /** Connects to a target; resolves host names. The reason of an `ExecServerError` selects the reply to the client. */
  connect(host: string, port: number): Promise<ByteStream>;
  /** Called if a client or its target is rejected; the connection is closed. */
  onRefused?: ((message: string) => void) | undefined;
  clock?: Clock | undefined;
}

/** A SOCKS5 proxy over accepted streams: performs the handshake and joins the stream with the one to its target. */
export class SocksProxy {
  readonly #options: SocksProxyOptions;
  readonly #clock: Clock;
  #handshakes = 0;

  constructor(options: SocksProxyOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** Serves one accepted stream. */
  accept(accepted: ByteStream): void {
    const { onRefused } = this.#options;
    if (this.#handshakes >= MAX_HANDSHAKES) {
      accepted.close("too many handshakes");
      onRefused?.(`more than ${MAX_HANDSHAKES} clients are within their SOCKS5 handshake`);
      return;
    }
    this.#handshakes++;
    let isOver = false;
    const finish = () => {
      if (isOver) return;
      isOver = true;
      this.#handshakes--;
      timer.cancel();
    };
    const stream = new HandshakeStream(accepted);
    const refuse = (reply: Uint8Array, message: string) => {
      finish();
      stream.refuse(reply);
      onRefused?.(message);
    };
    const timer = this.#clock.after(
      HANDSHAKE_TIMEOUT_MS,
      () => refuse(new Uint8Array(0), "a client did not finish its SOCKS5 handshake"),
      { keepAlive: false },
    );
    stream.start({
      onClose: finish,
      onRejected: refuse,
      onTarget: (host, port) => {
        finish();
        this.#options.connect(host, port).then(
          (target) => stream.join(target),
          (error: unknown) => refuse(socksReply(replyCodeFor(error)), errorMessage(error)),
        );
      },
    });
  }
}

interface HandshakeEvents {
  onTarget(host: string, port: number): void;
  onRejected(reply: Uint8Array, reason: string): void;
  /** The client closed the connection. */
  onClose(): void;
}

/**
 * A stream that reads the handshake from its beginning, and replays the bytes after it to the target. It holds at most the
 * window of the stream, because it acknowledges only the handshake.
 */
class HandshakeStream implements ByteStream {
  readonly #inner: ByteStream;
  /** Bytes of an incomplete message. */
  #pending: Uint8Array = new Uint8Array(0);
  /** Bytes for the target, in order. */
  #early: Uint8Array[] = [];
  #parse: ((bytes: Uint8Array) => SocksStep) | null = parseGreeting;
  #events: ByteStreamEvents | null = null;
  #hasEnded = false;
  #closed: { reason: string | null } | null = null;

  constructor(inner: ByteStream) {
    this.#inner = inner;
  }

  start(handshake: HandshakeEvents): void {
    this.#inner.open({
      data: (chunk) => {
        if (this.#events) {
          this.#events.data(chunk);
          return;
        }
        if (!this.#parse) {
          this.#early.push(chunk);
          return;
        }
        this.#pending = this.#pending.length === 0 ? chunk : concatBytes([this.#pending, chunk]);
        this.#advance(handshake);
      },
      end: () => {
        this.#hasEnded = true;
        if (this.#events) this.#events.end();
        else if (this.#parse) handshake.onRejected(new Uint8Array(0), "a client ended its SOCKS5 handshake early");
      },
      close: (reason) => {
        this.#closed = { reason };
        handshake.onClose();
        this.#events?.close(reason);
      },
    });
  }

  /** Parses messages until one is incomplete or the target is known. */
  #advance(handshake: HandshakeEvents): void {
    while (this.#parse) {
      const step = this.#parse(this.#pending);
      if (step.type === "incomplete") return;
      if (step.type === "rejected") {
        this.#parse = null;
        handshake.onRejected(step.reply, step.reason);
        return;
      }
      this.#pending = this.#pending.subarray(step.consumed);
      this.#inner.acknowledge(step.consumed);
      if (step.type === "connect") {
        this.#parse = null;
        if (this.#pending.length > 0) this.#early.push(this.#pending);
        handshake.onTarget(step.host, step.port);
        return;
      }
      this.#parse = parseRequest;
      this.#send(step.reply);
    }
  }

  /** Confirms the request and joins the client with its target. */
  join(target: ByteStream): void {
    if (this.#closed) {
      target.close("the client closed the connection");
      return;
    }
    this.#send(socksReply(SocksReply.succeeded));
    joinStreams(this, target);
  }

  /** Sends the reply and closes the connection. */
  refuse(reply: Uint8Array): void {
    this.#parse = null;
    if (reply.length > 0) this.#send(reply);
    this.#inner.close(reply.length > 0 ? null : "refused");
  }

  open(events: ByteStreamEvents): void {
    this.#events = events;
    for (const chunk of this.#early.splice(0)) events.data(chunk);
    if (this.#hasEnded) events.end();
    if (this.#closed) events.close(this.#closed.reason);
  }

  write(chunk: Uint8Array): Promise<void> {
    return this.#inner.write(chunk);
  }

  end(): void {
    this.#inner.end();
  }

  acknowledge(bytes: number): void {
    this.#inner.acknowledge(bytes);
  }

  close(reason: string | null): void {
    this.#inner.close(reason);
  }

  #send(bytes: Uint8Array): void {
    // A failed write means that the stream closes, which it reports itself.
    this.#inner.write(bytes).catch(() => undefined);
  }
}

function replyCodeFor(error: unknown): SocksReplyCode {
  const reason = error instanceof ExecServerError ? error.reason : undefined;
  return (reason && REPLY_BY_REASON[reason]) ?? SocksReply.failed;
}

const REPLY_BY_REASON: Partial<Record<ErrorReason, SocksReplyCode>> = {
  targetNotAllowed: SocksReply.notAllowed,
  connectionRefused: SocksReply.refused,
  networkUnreachable: SocksReply.networkUnreachable,
  hostUnreachable: SocksReply.hostUnreachable,
};
