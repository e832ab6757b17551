import { isUtf8 } from "node:buffer";
import type { Duplex } from "node:stream";
import type { Clock, Timer } from "../async/clock.ts";
import { systemClock } from "../async/clock.ts";
import { type ByteCodec, plainByteCodec } from "./byte-codec.ts";
import type { Connection, ConnectionEvent } from "./connection.ts";
import { messageEvent, writeEvent } from "./connection.ts";
import { FrameBuffers } from "./frame-buffers.ts";
import { DEFAULT_MAX_MESSAGE_BYTES } from "./line-connection.ts";
import { type Flushable, TurnFlusher } from "./turn-flusher.ts";
import { CloseCode, FrameReader, FrameWriter, type MessageKind, type Role } from "./websocket-frames.ts";

/** How often an idle peer is asked whether it is there; the reference server's number. */
const PING_EVERY_MS = 30_000;
/** How long it may take to answer before it counts as gone. */
const PONG_WITHIN_MS = 15_000;
/** After a close frame was sent, how long the peer has to close its side before the socket is dropped. */
const CLOSE_WITHIN_MS = 1_000;
/** Frames of one turn that are smaller than this together are copied into one buffer; larger ones are not worth a copy. */
const JOIN_BELOW_BYTES = 64 * 1024;

const defaultFlusher = new TurnFlusher();
const frameBuffers = new FrameBuffers();

export interface WebSocketConnectionOptions {
  label: string;
  role: Role;
  /** Bytes the socket had read beyond the handshake. */
  head?: Buffer;
  maxMessageBytes?: number;
  codec?: ByteCodec;
  /** Decides when what was queued is sent; one for all connections of a server. */
  flusher?: TurnFlusher;
  clock?: Clock;
  /** Ask an idle peer whether it is alive. A server does; a client waits to be asked. */
  keepAlive?: boolean;
}

/** One message a WebSocket message, over a socket whose handshake is done. Text goes out; text or binary comes in. */
export class WebSocketConnection implements Connection, Flushable {
  readonly label: string;
  onDrain: () => void = () => undefined;
  takeBytes?: (message: Uint8Array) => boolean;
  readonly #socket: Duplex;
  readonly #options: WebSocketConnectionOptions;
  readonly #clock: Clock;
  readonly #codec: ByteCodec;
  readonly #writer: FrameWriter;
  readonly #flusher: TurnFlusher;
  #onEvent: ((event: ConnectionEvent) => void) | null = null;
  #keepAlive: Timer | null = null;
  #heardSincePing = true;
  #over = false;
  /** Frames of this turn, not yet handed to the socket. */
  #frames: Buffer[] = [];
  #frameBytes = 0;

  constructor(socket: Duplex, options: WebSocketConnectionOptions) {
    this.label = options.label;
    this.#socket = socket;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#flusher = options.flusher ?? defaultFlusher;
    this.#codec = options.codec ?? plainByteCodec;
    this.#writer = new FrameWriter(options.role, this.#codec, randomMaskKey, frameBuffers);
  }

  open(onEvent: (event: ConnectionEvent) => void): void {
    this.#onEvent = onEvent;
    const reader = new FrameReader(
      this.#options.role,
      this.#codec,
      this.#options.maxMessageBytes ?? DEFAULT_MAX_MESSAGE_BYTES,
      {
        message: (payload, kind) => this.#message(payload, kind),
        ping: (payload) => {
          if (!this.#over) this.#write(this.#writer.pong(payload));
        },
        pong: () => undefined,
        close: () => this.#shut(CloseCode.normal, "", null),
        violated: (code, reason) => this.#shut(code, reason, `websocket protocol error: ${reason}`),
      },
      frameBuffers,
    );
    const socket = this.#socket;
    const take = (chunk: Buffer) => {
      this.#heardSincePing = true;
      reader.push(chunk);
    };
    socket.on("data", take);
    socket.on("drain", () => this.onDrain());
    socket.on("end", () => this.#gone(null));
    socket.on("close", () => this.#gone(null));
    socket.on("error", (error) =>
      this.#gone(`failed to read websocket JSON-RPC message from ${this.label}: ${error.message}`),
    );
    if (this.#options.head && this.#options.head.length > 0) take(this.#options.head);
    if (this.#options.keepAlive) this.#schedulePing();
  }

  send(text: string): void {
    if (!this.#over) this.#write(this.#writer.text(text));
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    if (!this.#over) this.#write(this.#writer.chunk(head, bytes, tail));
  }

  get queuedBytes(): number {
    return this.#socket.writableLength + this.#frameBytes;
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  close(reason?: string): void {
    this.#shut(reason === undefined ? CloseCode.normal : CloseCode.policy, reason ?? "", null);
  }

  /** Hands this turn's frames to the socket. */
  flush(): void {
    const frames = this.#frames;
    const bytes = this.#frameBytes;
    this.#frames = [];
    this.#frameBytes = 0;
    const [only] = frames;
    if (only === undefined || this.#socket.destroyed || this.#socket.writableEnded) return;
    if (frames.length === 1) {
      this.#send(only);
    } else if (bytes <= JOIN_BELOW_BYTES) {
      this.#socket.write(Buffer.concat(frames, bytes));
    } else {
      this.#socket.cork();
      for (const frame of frames) this.#send(frame);
      this.#socket.uncork();
    }
  }

  #send(frame: Buffer): void {
    if (frameBuffers.isLent(frame)) this.#socket.write(frame, () => frameBuffers.give(frame));
    else this.#socket.write(frame);
  }

  #write(frame: Buffer): void {
    if (this.#frames.length === 0) this.#flusher.add(this);
    this.#frames.push(frame);
    this.#frameBytes += frame.length;
  }

  #message(payload: Buffer, kind: MessageKind): void {
    if (this.#over || this.takeBytes?.(payload)) return;
    const write = this.#options.role === "server" ? writeEvent(payload, this.#codec) : null;
    if (write) {
      this.#onEvent?.(write);
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
    this.#onEvent?.(messageEvent(text, this.label, "websocket "));
  }

  #schedulePing(): void {
    this.#keepAlive = this.#clock.after(PING_EVERY_MS, () => this.#ping(), { keepAlive: false });
  }

  #ping(): void {
    if (this.#over) return;
    this.#heardSincePing = false;
    this.#write(this.#writer.ping());
    this.#keepAlive = this.#clock.after(PONG_WITHIN_MS, () => this.#checkPong(), { keepAlive: false });
  }

  /** A peer that is slow to take what is queued may be slow to answer too: that is not silence. */
  #checkPong(): void {
    if (this.#over) return;
    if (!this.#heardSincePing && this.#socket.writableLength === 0) {
      this.#gone(`no answer to a ping within ${PONG_WITHIN_MS} ms`);
      this.#socket.destroy();
      return;
    }
    this.#keepAlive = this.#clock.after(PING_EVERY_MS - PONG_WITHIN_MS, () => this.#ping(), {
      keepAlive: false,
    });
  }

  #shut(code: number, reason: string, problem: string | null): void {
    if (this.#over) return;
    this.flush();
    this.#socket.end(this.#writer.close(code, reason));
    const timer = this.#clock.after(CLOSE_WITHIN_MS, () => this.#socket.destroy(), { keepAlive: false });
    this.#socket.once("close", () => timer.cancel());
    this.#gone(problem);
  }

  #gone(reason: string | null): void {
    if (this.#over) return;
    this.#over = true;
    this.#keepAlive?.cancel();
    this.#onEvent?.({ type: "disconnected", reason });
    // A peer that only closed its sending side is of no use to a request-answer protocol.
    if (!this.#socket.writableEnded) this.#socket.end();
    this.#socket.resume();
  }
}

/** Mask keys keep proxies from being confused, not secrets: a cheap generator is enough, a constant is not. */
function randomMaskKey(): number {
  return (Math.random() * 0x1_0000_0000) >>> 0;
}
