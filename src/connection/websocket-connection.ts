import { isAscii, isUtf8 } from "node:buffer";
import type { ByteLimit } from "../async/byte-semaphore.ts";
import { type Clock, systemClock, type Timer } from "../async/clock.ts";
import { freeCopiedBuffer } from "../base/free-buffer.ts";
import { isBlockMessage, parseBlockMessage } from "../protocol/block-message.ts";
import { toMessage } from "../protocol/envelope.ts";
import { exceedsStringLimit, TOO_MANY_VALUES } from "../protocol/json-text.ts";
import { parseWithBinaryChunk } from "../protocol/message-text.ts";
import { type ByteCodec, nodeByteCodec } from "./byte-codec.ts";
import { ChunkedSender } from "./chunked-sender.ts";
import {
  type BinaryBlocks,
  type BytesDecoder,
  type ChunkedMessage,
  type Connection,
  type ConnectionEvent,
  type DirectInput,
  toConnectionEvent,
  toParsedEvent,
} from "./connection.ts";
import { frameBufferPool } from "./frame-buffer-pool.ts";
import type { FrameSocket } from "./frame-socket.ts";
import { FrameWriter } from "./frame-writer.ts";
import { DEFAULT_MAX_MESSAGE_BYTES } from "./line-connection.ts";
import { MessageOrder, PARSED_ASIDE_BYTES } from "./message-order.ts";
import type { EndpointRole, MessageKind } from "./websocket-frames.ts";
import { CloseCode, FrameReader, LARGE_MESSAGE_BYTES } from "./websocket-frames.ts";
import { type PingedConnection, WebSocketKeepAlive } from "./websocket-keep-alive.ts";

/** Time between a close frame and the forced close of the socket, if the peer reads nothing. */
const CLOSE_TIMEOUT_MS = 1_000;
/** Maximum number of close timeouts for a peer that still reads its queue, for example over a slow network. */
const MAX_CLOSE_TIMEOUTS = 10;

export interface WebSocketConnectionOptions {
  label: string;
  role: EndpointRole;
  maxMessageBytes?: number | undefined;
  codec?: ByteCodec | undefined;
  clock?: Clock | undefined;
  /** Sends pings to the peer. Servers do; clients only reply. */
  keepAlive?: boolean | undefined;
  /** Queue limit. Above it, the socket stops reading, and a peer that reads nothing is closed. Default: unlimited. */
  maxQueuedBytes?: number | undefined;
  /** Memory limits for incomplete messages. A message beyond them waits. */
  incomingLimits?: IncomingByteLimits | undefined;
  /** Receives complete messages unparsed, for protocols other than JSON-RPC. */
  onMessage?: (payload: Buffer, kind: MessageKind) => void;
}

/**
 * Memory for incoming messages. Few large messages fit, but a single one is always admitted. A message that grows from
 * small to large keeps its small reservation, so that the two kinds never wait for each other.
 */
export type IncomingByteLimits = Record<IncomingKind, ByteLimit>;
type IncomingKind = "small" | "large";

/** Reason for a pause: the owner, a full send queue, a message that is being parsed, or the incoming byte limit. */
type Pause = "owner" | "full" | "parsing" | IncomingKind;

interface ReservedBytes {
  abort: AbortController;
  release: () => void;
}

/**
 * A WebSocket connection after the handshake. Sends text messages, and binary blocks if the peer accepts them. Accepts
 * text and binary messages.
 */
export class WebSocketConnection implements Connection {
  readonly label: string;
  onDrain: () => void = () => undefined;
  readonly #socket: FrameSocket;
  readonly #options: WebSocketConnectionOptions;
  readonly #clock: Clock;
  readonly #codec: ByteCodec;
  readonly #writer: FrameWriter;
  readonly #parts: ChunkedSender;
  #onEvent: ((event: ConnectionEvent) => void) | null = null;
  #decodeBytes: BytesDecoder | undefined;
  #keepAlive: WebSocketKeepAlive | null = null;
  #destroyTimer: Timer | null = null;
  /** Why reading is paused. */
  readonly #pauses = new Set<Pause>();
  readonly #order = new MessageOrder();
  readonly #directInputPauses = new Set<"sending" | "parsing">();
  /** Reservations of the current incoming message, granted or pending. */
  readonly #reservations = new Map<IncomingKind, ReservedBytes>();
  #isClosed = false;
  #hasBinaryBlocks = false;
  #onPong: () => void = () => undefined;

  constructor(socket: FrameSocket, options: WebSocketConnectionOptions) {
    this.label = options.label;
    this.#socket = socket;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#codec = options.codec ?? nodeByteCodec;
    this.#writer = new FrameWriter(options.role, this.#codec);
    this.#parts = new ChunkedSender({
      get queuedBytes() {
        return socket.queuedBytes;
      },
      sendPart: (head, bytes, tail, opening) => {
        if (!this.#isClosed) socket.sendChunk(head, bytes, tail, opening);
      },
      setPaused: (isPaused) => this.#pauseDirectInput("sending", isPaused),
      fail: (reason) => this.#closeWith(CloseCode.internalError, reason, reason),
    });
  }

  open(onEvent: (event: ConnectionEvent) => void, decodeBytes?: BytesDecoder): void {
    this.#onEvent = onEvent;
    this.#decodeBytes = decodeBytes;
    const reader = new FrameReader(
      this.#options.role,
      this.#codec,
      this.#options.maxMessageBytes ?? DEFAULT_MAX_MESSAGE_BYTES,
      {
        message: (payload, kind) => {
          const isBlock = this.#isBlock(payload, kind);
          // The chunk of a block is freed after use, so a block must not share its memory with other messages.
          const isCopied = isBlock && payload.length !== payload.buffer.byteLength;
          const message = isCopied ? Buffer.from(payload) : payload;
          const isRetained = isBlock || this.#isParsedAside(payload.length) || this.#order.isBusy;
          if (isRetained && !isCopied) reader.retainPayload();
          this.#order.run(() => this.#message(message, kind));
          this.#releaseReservedBytes();
        },
        messageStarted: (bytes) => this.#reserveBytes(bytes),
        ping: (payload) => {
          if (!this.#isClosed) this.#socket.sendFrame(this.#writer.pong(payload));
        },
        pong: () => this.#onPong(),
        close: (_code, reason) =>
          this.#order.run(() => this.#closeWith(CloseCode.normal, "", reason === "" ? null : reason)),
        protocolError: (code, reason) =>
          this.#order.run(() => this.#closeWith(code, reason, `websocket protocol error: ${reason}`)),
      },
      frameBufferPool,
    );
    if (this.#options.keepAlive) this.#keepAlive = new WebSocketKeepAlive(this.#pinged(), this.#clock);
    this.#socket.open({
      bytes: (chunk) => {
        // Frees the copied chunk immediately: otherwise a large message occupies twice its size until the next GC.
        if (reader.push(chunk) === "copied") freeCopiedBuffer(chunk);
      },
      text: (text) => this.#order.run(() => this.#text(text)),
      message: (payload, kind) => this.#order.run(() => this.#message(payload, kind)),
      decoded: (message) =>
        this.#order.run(() => {
          if (!this.#isClosed) this.#onEvent?.({ type: "message", message });
        }),
      drain: () => this.#drained(),
      end: () => this.#order.run(() => this.#onClosed(null)),
      close: (problem) => {
        this.#destroyTimer?.cancel();
        const reason = `failed to read websocket JSON-RPC message from ${this.label}: ${problem}`;
        this.#order.run(() => this.#onClosed(problem === null ? null : reason));
      },
    });
  }

  send(text: string): void {
    if (this.#isClosed) return;
    if (this.#parts.isBusy) this.#sendInOrder(text.length, () => this.#socket.sendText(text));
    else this.#socket.sendText(text);
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    if (this.#isClosed) return;
    if (this.#parts.isBusy) {
      // The caller may free the bytes when this method returns.
      const copy = new Uint8Array(bytes);
      this.#sendInOrder(copy.length, () => this.#socket.sendChunk(head, copy, tail));
    } else this.#socket.sendChunk(head, bytes, tail);
  }

  async sendChunked(message: ChunkedMessage): Promise<void> {
    if (!this.#isClosed) await this.#parts.send(message);
  }

  readonly binaryBlocks: BinaryBlocks = {
    enable: () => {
      this.#hasBinaryBlocks = true;
    },
    send: (text, bytes) => {
      if (this.#isClosed) return;
      if (this.#parts.isBusy) {
        const copy = new Uint8Array(bytes);
        this.#sendInOrder(copy.length, () => this.#socket.sendBlock(text, copy));
      } else this.#socket.sendBlock(text, bytes);
    },
  };

  get directInput(): DirectInput | undefined {
    return this.#socket.directInput;
  }

  get queuedBytes(): number {
    return this.#socket.queuedBytes + this.#parts.waitingBytes;
  }

  ping(onPong: () => void): void {
    this.#onPong = onPong;
    if (!this.#isClosed) this.#socket.sendFrame(this.#writer.ping());
  }

  pause(): void {
    this.#pause("owner");
  }

  resume(): void {
    this.#resume("owner");
  }

  #pause(reason: Pause): void {
    this.#pauses.add(reason);
    this.#socket.pause();
  }

  #resume(reason: Pause): void {
    if (this.#pauses.delete(reason) && this.#pauses.size === 0 && !this.#isClosed) this.#socket.resume();
  }

  /** Reserves memory for an incoming message. Pauses reading until the limit shared by all connections permits it. */
  #reserveBytes(bytes: number): void {
    const kind = bytes > LARGE_MESSAGE_BYTES ? "large" : "small";
    const semaphore = this.#options.incomingLimits?.[kind];
    if (!semaphore || this.#reservations.has(kind)) return;
    const reservation: ReservedBytes = { abort: new AbortController(), release: () => undefined };
    this.#reservations.set(kind, reservation);
    const granted = semaphore.tryAcquire(bytes);
    if (granted) {
      reservation.release = granted;
      return;
    }
    this.#pause(kind);
    semaphore.acquire(bytes, reservation.abort.signal).then(
      (release) => {
        if (this.#reservations.get(kind) === reservation) reservation.release = release;
        else release();
        this.#resume(kind);
      },
      // Aborted, because the connection closed.
      () => undefined,
    );
  }

  #releaseReservedBytes(): void {
    this.#takeReservations()();
  }

  /** Ends the reservations of the current message. Returns the function that releases them. */
  #takeReservations(): () => void {
    const reservations = [...this.#reservations.values()];
    this.#reservations.clear();
    return () => {
      for (const { abort, release } of reservations) {
        abort.abort();
        release();
      }
    };
  }

  close(reason?: string): void {
    this.#closeWith(reason === undefined ? CloseCode.normal : CloseCode.policy, reason ?? "", null);
  }

  #sendInOrder(bytes: number, send: () => void): void {
    this.#parts.enqueue(bytes, () => {
      if (!this.#isClosed) send();
    });
    if (this.#parts.waitingBytes > this.#maxQueuedBytes) this.#pause("full");
  }

  get #maxQueuedBytes(): number {
    return this.#options.maxQueuedBytes ?? Number.POSITIVE_INFINITY;
  }

  #drained(): void {
    this.#parts.sendNext();
    if (this.#parts.waitingBytes <= this.#maxQueuedBytes) this.#resume("full");
    this.onDrain();
  }

  #message(payload: Buffer, kind: MessageKind): void {
    if (this.#isClosed) return;
    if (this.#isBlock(payload, kind)) {
      this.#onEvent?.(toParsedEvent(parseBlockMessage(payload), this.label, "websocket "));
      return;
    }
    if (this.#decodeBytes?.(payload)) return;
    if (this.#isParsedAside(payload.length)) {
      this.#parseAside(payload, kind);
      return;
    }
    if (exceedsStringLimit(payload)) {
      const reason = `failed to parse websocket JSON-RPC message from ${this.label}: ${TOO_MANY_VALUES}`;
      this.#onEvent?.({ type: "malformed", reason });
      return;
    }
    const { onMessage } = this.#options;
    if (onMessage && (kind === "binary" || isUtf8(payload))) {
      onMessage(payload, kind);
      return;
    }
    if (isAscii(payload)) {
      this.#text(payload.toString("latin1"));
      return;
    }
    const text = payload.toString("utf8");
    // Only text with a replacement character can be invalid UTF-8, so only that text is validated.
    if (text.includes("\ufffd") && !isUtf8(payload)) this.#notUtf8(kind);
    else this.#text(text);
  }

  /** A binary message may contain any bytes, so it is only malformed; in text, they are a protocol error. */
  #notUtf8(kind: MessageKind): void {
    const reason = `failed to parse websocket JSON-RPC message from ${this.label}: it is not UTF-8`;
    if (kind === "binary") this.#onEvent?.({ type: "malformed", reason });
    else this.#closeWith(CloseCode.invalidText, "text is not UTF-8", "websocket protocol error: text is not UTF-8");
  }

  #isBlock(payload: Buffer, kind: MessageKind): boolean {
    return this.#hasBinaryBlocks && kind === "binary" && isBlockMessage(payload);
  }

  /** Clients parse the responses of their one server, which they requested, on the event loop. */
  #isParsedAside(bytes: number): boolean {
    const { role, onMessage } = this.#options;
    return bytes > PARSED_ASIDE_BYTES && role === "server" && !onMessage && this.#codec.parseLarge !== undefined;
  }

  /** Parses a message on another thread. Reading pauses, and messages that were read already wait. */
  #parseAside(payload: Buffer, kind: MessageKind): void {
    if (!this.#codec.parseLarge) return;
    const release = this.#takeReservations();
    this.#pause("parsing");
    this.#pauseDirectInput("parsing", true);
    void this.#order.runParsed(this.#codec.parseLarge(payload), (parsed) => {
      release();
      this.#pauseDirectInput("parsing", false);
      this.#resume("parsing");
      if (this.#isClosed) return;
      if (parsed === null) this.#notUtf8(kind);
      else this.#onEvent?.(toParsedEvent(parsed, this.label, "websocket "));
    });
  }

  #pauseDirectInput(reason: "sending" | "parsing", isPaused: boolean): void {
    if (isPaused) this.#directInputPauses.add(reason);
    else this.#directInputPauses.delete(reason);
    this.#socket.directInput?.setPaused(this.#directInputPauses.size > 0);
  }

  #text(text: string): void {
    if (this.#isClosed) return;
    const { onMessage } = this.#options;
    if (onMessage) {
      onMessage(Buffer.from(text), "text");
      return;
    }
    const isLarge = this.#isParsedAside(text.length);
    const chunked = isLarge ? parseWithBinaryChunk(text) : null;
    if (chunked) this.#onEvent?.(toParsedEvent(toMessage(chunked), this.label, "websocket "));
    else if (isLarge) this.#parseAside(Buffer.from(text), "text");
    else this.#onEvent?.(toConnectionEvent(text, this.label, "websocket "));
  }

  /** This connection, as seen by its keep-alive. */
  #pinged(): PingedConnection {
    const socket = this.#socket;
    return {
      socket,
      isBlockingOthers: () => {
        const { incomingLimits } = this.#options;
        if (!incomingLimits || this.#pauses.size > 0) return false;
        return [...this.#reservations.keys()].some((kind) => incomingLimits[kind].hasWaiters);
      },
      // Parts of a response, or more than output alone may queue.
      hasQueuedResponses: () =>
        (this.#parts.isBusy && socket.queuedBytes > 0) || this.queuedBytes > this.#maxQueuedBytes,
      sendPing: () => socket.sendFrame(this.#writer.ping()),
      close: (code, reason, problem) => this.#closeWith(code, reason, problem),
      drop: (problem) => {
        this.#onClosed(problem);
        socket.destroy();
      },
    };
  }

  #closeWith(code: number, reason: string, problem: string | null): void {
    if (this.#isClosed) return;
    this.#socket.sendFrame(this.#writer.close(code, reason));
    this.#destroyAfterTimeout(MAX_CLOSE_TIMEOUTS);
    this.#onClosed(problem);
  }

  #destroyAfterTimeout(timeouts: number): void {
    const { sentBytes } = this.#socket;
    const drop = () => {
      if (timeouts > 1 && this.#socket.sentBytes > sentBytes) this.#destroyAfterTimeout(timeouts - 1);
      else this.#socket.destroy();
    };
    this.#destroyTimer = this.#clock.after(CLOSE_TIMEOUT_MS, drop, { keepAlive: false });
  }

  #onClosed(reason: string | null): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#keepAlive?.stop();
    this.#parts.discard();
    this.#releaseReservedBytes();
    this.#onEvent?.({ type: "disconnected", reason });
    // A half-open connection is useless for a request-response protocol.
    this.#socket.end();
  }
}
