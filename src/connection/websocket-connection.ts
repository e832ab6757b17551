import { isAscii, isUtf8 } from "node:buffer";
import type { ByteTurns } from "../async/byte-semaphore.ts";
import type { Clock, Timer } from "../async/clock.ts";
import { systemClock } from "../async/clock.ts";
import { freeCopied } from "../base/free-buffer.ts";
import { holdsTooManyStrings, TOO_MANY_VALUES } from "../protocol/json-text.ts";
import { type ByteCodec, plainByteCodec } from "./byte-codec.ts";
import { PartedSender } from "./chunked-sender.ts";
import type { Connection, ConnectionEvent, TakeBytes } from "./connection.ts";
import { messageEvent } from "./connection.ts";
import { frameBuffers } from "./frame-buffer-pool.ts";
import type { FrameSocket } from "./frame-socket.ts";
import { DEFAULT_MAX_MESSAGE_BYTES } from "./line-connection.ts";
import type { LongMessage } from "./long-message.ts";
import type { StraightWay } from "./straight-way.ts";
import {
  CloseCode,
  FrameReader,
  FrameWriter,
  LARGE_MESSAGE_BYTES,
  type MessageKind,
  type Role,
} from "./websocket-frames.ts";

/** How often an idle peer is asked whether it is there; the reference server's number. */
const PING_EVERY_MS = 30_000;
/** How long it may take to answer before it counts as gone. */
const PONG_WITHIN_MS = 15_000;
/** After a close frame was sent, how long a peer that takes nothing has to close its side before the socket is dropped. */
const CLOSE_WITHIN_MS = 1_000;
/** One that takes what is queued for it, over a slow link or on a busy machine, has this many times as long. */
const CLOSE_TURNS = 10;

export interface WebSocketConnectionOptions {
  label: string;
  role: Role;
  maxMessageBytes?: number | undefined;
  codec?: ByteCodec | undefined;
  clock?: Clock | undefined;
  /** Ask an idle peer whether it is alive. A server does; a client waits to be asked. */
  keepAlive?: boolean | undefined;
  /** Above this a peer that takes nothing is closed; absent: never. Its socket stops reading it there. */
  maxQueuedBytes?: number | undefined;
  /** Where messages that have not come whole wait until there is room for them. */
  turns?: IncomingTurns | undefined;
  /** Takes whole messages as they are, where the same frames carry something else than JSON-RPC. */
  onMessage?: (payload: Buffer, kind: MessageKind) => void;
}

/**
 * The room for messages that are coming in. Of the large ones few fit, and one alone always goes; those that turn out to be
 * large keep their other share, so neither waits for the other.
 */
export type IncomingTurns = Record<IncomingKind, ByteTurns>;
type IncomingKind = "small" | "large";

/** Its owner wants nothing; more waits behind a long message than may be queued; a message waits for room. */
type Pause = "owner" | "full" | IncomingKind;

interface Share {
  leave: AbortController;
  release: () => void;
}

/** One message a WebSocket message, over a socket whose handshake is done. Text goes out; text or binary comes in. */
export class WebSocketConnection implements Connection {
  readonly label: string;
  onDrain: () => void = () => undefined;
  readonly #socket: FrameSocket;
  readonly #options: WebSocketConnectionOptions;
  readonly #clock: Clock;
  readonly #codec: ByteCodec;
  readonly #writer: FrameWriter;
  readonly #parts: PartedSender;
  #onEvent: ((event: ConnectionEvent) => void) | null = null;
  #takeBytes: TakeBytes | undefined;
  #keepAlive: Timer | null = null;
  #dropping: Timer | null = null;
  #receivedAtPing = 0;
  /** What had left when the last ping was sent. */
  #sentAtPing: number | null = null;
  /** Why reading is paused. */
  readonly #pauses = new Set<Pause>();
  /** What the message that is coming in has of the memory, or waits for. */
  readonly #shares = new Map<IncomingKind, Share>();
  #over = false;
  #onPong: () => void = () => undefined;

  constructor(socket: FrameSocket, options: WebSocketConnectionOptions) {
    this.label = options.label;
    this.#socket = socket;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#codec = options.codec ?? plainByteCodec;
    this.#writer = new FrameWriter(options.role, this.#codec);
    this.#parts = new PartedSender(
      {
        get queuedBytes() {
          return socket.queuedBytes;
        },
        sendPart: (part, place) => {
          if (!this.#over) socket.sendFrame(this.#writer.part(part, place));
        },
        held: (isHeld) => socket.straightWay?.hold(isHeld),
      },
      this.#codec,
    );
  }

  open(onEvent: (event: ConnectionEvent) => void, takeBytes?: TakeBytes): void {
    this.#onEvent = onEvent;
    this.#takeBytes = takeBytes;
    const reader = new FrameReader(
      this.#options.role,
      this.#codec,
      this.#options.maxMessageBytes ?? DEFAULT_MAX_MESSAGE_BYTES,
      {
        message: (payload, kind) => {
          this.#message(payload, kind);
          this.#giveSharesBack();
        },
        begun: (bytes) => this.#admit(bytes),
        ping: (payload) => {
          if (!this.#over) this.#socket.sendFrame(this.#writer.pong(payload));
        },
        pong: () => this.#onPong(),
        close: (_code, reason) => this.#shut(CloseCode.normal, "", reason === "" ? null : reason),
        violated: (code, reason) => this.#shut(code, reason, `websocket protocol error: ${reason}`),
      },
      frameBuffers,
    );
    if (this.#options.keepAlive) this.#schedulePing();
    this.#socket.open({
      bytes: (chunk) => {
        // A large message would leave as much again to the collector as it has itself.
        if (reader.push(chunk) === "copied") freeCopied(chunk);
      },
      text: (text) => this.#text(text),
      message: (payload) => this.#message(payload, "text"),
      write: (id, params) => {
        if (!this.#over) this.#onEvent?.({ type: "write", id, params });
      },
      drain: () => this.#drained(),
      end: () => this.#gone(null),
      close: (problem) => {
        this.#dropping?.cancel();
        this.#gone(
          problem === null
            ? null
            : `failed to read websocket JSON-RPC message from ${this.label}: ${problem}`,
        );
      },
    });
  }

  send(text: string): void {
    if (this.#over) return;
    if (this.#parts.isBusy) this.#sendAfter(text.length, () => this.#socket.sendText(text));
    else this.#socket.sendText(text);
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    if (this.#over) return;
    if (this.#parts.isBusy) this.#sendAfter(bytes.length, () => this.#socket.sendChunk(head, bytes, tail));
    else this.#socket.sendChunk(head, bytes, tail);
  }

  async sendLong(message: LongMessage): Promise<void> {
    if (!this.#over) await this.#parts.send(message);
  }

  get straightWay(): StraightWay | undefined {
    return this.#socket.straightWay;
  }

  get queuedBytes(): number {
    return this.#socket.queuedBytes + this.#parts.waitingBytes;
  }

  ping(onAnswer: () => void): void {
    this.#onPong = onAnswer;
    if (!this.#over) this.#socket.sendFrame(this.#writer.ping());
  }

  pause(): void {
    this.#pause("owner");
  }

  resume(): void {
    this.#resume("owner");
  }

  #pause(why: Pause): void {
    this.#pauses.add(why);
    this.#socket.pause();
  }

  #resume(why: Pause): void {
    if (this.#pauses.delete(why) && this.#pauses.size === 0 && !this.#over) this.#socket.resume();
  }

  /** The rest of a message is read when there is room for it among those of all connections. */
  #admit(bytes: number): void {
    const kind = bytes > LARGE_MESSAGE_BYTES ? "large" : "small";
    const turns = this.#options.turns?.[kind];
    if (!turns || this.#shares.has(kind)) return;
    const share: Share = { leave: new AbortController(), release: () => undefined };
    this.#shares.set(kind, share);
    const taken = turns.tryTake(bytes);
    if (taken) {
      share.release = taken;
      return;
    }
    this.#pause(kind);
    turns.take(bytes, share.leave.signal).then(
      (release) => {
        if (this.#shares.get(kind) === share) share.release = release;
        else release();
        this.#resume(kind);
      },
      // The peer has gone: no room is needed.
      () => undefined,
    );
  }

  #giveSharesBack(): void {
    const shares = [...this.#shares.values()];
    this.#shares.clear();
    for (const { leave, release } of shares) {
      leave.abort();
      release();
    }
  }

  close(reason?: string): void {
    this.#shut(reason === undefined ? CloseCode.normal : CloseCode.policy, reason ?? "", null);
  }

  #sendAfter(bytes: number, send: () => void): void {
    this.#parts.wait(bytes, () => {
      if (!this.#over) send();
    });
    if (this.#parts.waitingBytes > this.#maxQueuedBytes) this.#pause("full");
  }

  get #maxQueuedBytes(): number {
    return this.#options.maxQueuedBytes ?? Number.POSITIVE_INFINITY;
  }

  #drained(): void {
    this.#parts.proceed();
    if (this.#parts.waitingBytes <= this.#maxQueuedBytes) this.#resume("full");
    this.onDrain();
  }

  #message(payload: Buffer, kind: MessageKind): void {
    if (this.#over || this.#takeBytes?.(payload) || this.#takeWrite(payload)) return;
    if (holdsTooManyStrings(payload)) {
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
    // Only a text that holds the replacement character can have been broken: check that one alone.
    if (text.includes("\ufffd") && !isUtf8(payload)) {
      if (kind === "binary") {
        // Bytes are allowed in a binary message; they are only no JSON.
        const reason = `failed to parse websocket JSON-RPC message from ${this.label}: it is not UTF-8`;
        this.#onEvent?.({ type: "malformed", reason });
        return;
      }
      this.#shut(CloseCode.invalidText, "text is not UTF-8", "websocket protocol error: text is not UTF-8");
      return;
    }
    this.#text(text);
  }

  /** A large write is recognised by its bytes, so that neither a text nor a tree is made of it. */
  #takeWrite(payload: Buffer): boolean {
    if (payload.length <= LARGE_MESSAGE_BYTES || this.#options.role === "client") return false;
    const write = this.#codec.readWrite?.(payload);
    if (!write) return false;
    this.#onEvent?.({ type: "write", ...write });
    return true;
  }

  #text(text: string): void {
    if (this.#over) return;
    const { onMessage } = this.#options;
    if (onMessage) onMessage(Buffer.from(text), "text");
    else this.#onEvent?.(messageEvent(text, this.label, "websocket "));
  }

  #schedulePing(): void {
    this.#keepAlive = this.#clock.after(PING_EVERY_MS, () => this.#ping(), { keepAlive: false });
  }

  #ping(): void {
    if (this.#over) return;
    if (this.#isInTheWay()) {
      this.#shut(
        CloseCode.policy,
        `began a large message and sent no more of it for ${PING_EVERY_MS} ms`,
        "it stalled",
      );
      return;
    }
    if (this.#leavesAnswersUnread()) {
      this.#shut(
        CloseCode.policy,
        `left its answers unread for ${PING_EVERY_MS} ms`,
        "its answers were left unread",
      );
      return;
    }
    this.#sentAtPing = this.#socket.sentBytes;
    this.#receivedAtPing = this.#socket.receivedBytes;
    this.#socket.sendFrame(this.#writer.ping());
    this.#keepAlive = this.#clock.after(PONG_WITHIN_MS, () => this.#checkPong(), { keepAlive: false });
  }

  /** A peer that is slow to take what is queued may be slow to answer too: that is not silence. */
  #checkPong(): void {
    if (this.#over) return;
    if (this.#socket.receivedBytes === this.#receivedAtPing && this.#socket.queuedBytes === 0) {
      this.#gone(`no answer to a ping within ${PONG_WITHIN_MS} ms`);
      this.#socket.destroy();
      return;
    }
    this.#keepAlive = this.#clock.after(PING_EVERY_MS - PONG_WITHIN_MS, () => this.#ping(), {
      keepAlive: false,
    });
  }

  /** It was given room for a message, has sent nothing since the last ping, and others wait for the room. */
  #isInTheWay(): boolean {
    const { turns } = this.#options;
    if (!turns || this.#pauses.size > 0 || this.#sentAtPing === null) return false;
    if (this.#socket.receivedBytes !== this.#receivedAtPing) return false;
    return [...this.#shares.keys()].some((kind) => turns[kind].isAwaited);
  }

  /**
   * Nothing was taken since the last ping though there is more than output alone may queue, or a long answer under way.
   * Output waits for as long as it has to; answers that were asked for hold memory that others need.
   */
  #leavesAnswersUnread(): boolean {
    if (this.#sentAtPing === null || this.#socket.sentBytes > this.#sentAtPing) return false;
    return this.#parts.isBusy || this.queuedBytes > this.#maxQueuedBytes;
  }

  #shut(code: number, reason: string, problem: string | null): void {
    if (this.#over) return;
    this.#socket.sendFrame(this.#writer.close(code, reason));
    this.#dropLater(CLOSE_TURNS);
    this.#gone(problem);
  }

  #dropLater(turns: number): void {
    const { sentBytes } = this.#socket;
    const drop = () => {
      if (turns > 1 && this.#socket.sentBytes > sentBytes) this.#dropLater(turns - 1);
      else this.#socket.destroy();
    };
    this.#dropping = this.#clock.after(CLOSE_WITHIN_MS, drop, { keepAlive: false });
  }

  #gone(reason: string | null): void {
    if (this.#over) return;
    this.#over = true;
    this.#keepAlive?.cancel();
    this.#parts.abandon();
    this.#giveSharesBack();
    this.#onEvent?.({ type: "disconnected", reason });
    // A peer that only closed its sending side is of no use to a request-answer protocol.
    this.#socket.end();
  }
}
