import type { ListenAddress } from "../connection/accepted-socket.ts";
import { frameBufferPool } from "../connection/frame-buffer-pool.ts";
import type {
  ClientSocket,
  ClientSocketEvents,
  CommandStdio,
  FrameOpening,
  FrameSocket,
  FrameSocketEvents,
} from "../connection/frame-socket.ts";
import { FrameWriter } from "../connection/frame-writer.ts";
import type { NativeAddon, NativeSocket, NativeSocketEvent } from "./addon.ts";
import { closeProblem, nativeCodec, systemErrors } from "./native-codec.ts";
import { NativeFrameSocket } from "./native-frame-socket.ts";

/** The connection of a client that the addon reads and writes: through a socket, or the stdio of a command. */
export class NativeClientSocket extends NativeFrameSocket<ClientSocketEvents> implements ClientSocket, FrameSocket {
  /** Address in error messages. */
  readonly #target: string;
  readonly #stdio: CommandStdio | null;
  readonly #writer: FrameWriter;
  #isReading = false;
  #received: Buffer = Buffer.alloc(0);
  #maxMessageBytes = 0;
  #isEnded = false;

  /** Takes a socket of `connectSocket` with its address, or a socket of `openClientSocket` with its command. */
  constructor(native: NativeAddon, socket: NativeSocket, peer: string | CommandStdio) {
    super(native, socket);
    const stdio = typeof peer === "string" ? null : peer;
    this.#stdio = stdio;
    this.#target = typeof peer === "string" ? peer : "";
    // Masking protects proxies, and a pipe has none. The key 0 changes no byte.
    this.#writer = new FrameWriter("client", nativeCodec(native), frameBufferPool, stdio ? () => 0 : undefined);
  }

  start(request: string, events: ClientSocketEvents): void {
    this.unframed = events;
    this.#startReading();
    this.sendFrame(Buffer.from(request, "latin1"));
  }

  upgrade(received: Buffer, maxMessageBytes: number): FrameSocket {
    this.unframed = null;
    this.#received = received;
    this.#maxMessageBytes = maxMessageBytes;
    this.pause();
    return this;
  }

  open(events: FrameSocketEvents): void {
    this.frames = events;
    this.#startReading();
    const received = this.#received;
    this.#received = Buffer.alloc(0);
    this.resume();
    this.native.upgradeToFrames(this.socket, this.#maxMessageBytes, Number.MAX_SAFE_INTEGER, received);
  }

  #startReading(): void {
    if (this.#isReading) return;
    this.#isReading = true;
    this.native.startSocket(this.socket, {
      onData: this.onData,
      onWrite: () => undefined,
      onEvent: (event) => {
        if (this.frames) this.onFrameEvent(this.frames, event);
        else if (event.type === "close" && event.errno !== null)
          this.unframed?.end(socketError(event.errno, event.syscall, this.#target));
        else if (event.type !== "drain") this.unframed?.end();
      },
    });
  }

  protected override onFrameEvent(frames: FrameSocketEvents, event: NativeSocketEvent): void {
    const hasEnded = event.type === "end" || event.type === "close";
    if (this.#stdio && hasEnded)
      this.#onCommandEnded(this.#stdio, frames, event.type === "close" ? closeProblem(event) : null);
    else super.onFrameEvent(frames, event);
  }

  /** Reports the end of the connection once. A failure of the command is its reason. */
  #onCommandEnded({ ended }: CommandStdio, frames: FrameSocketEvents, problem: string | null): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    void ended.then((failure) => {
      const reason = failure ?? problem;
      if (reason === null) frames.end();
      else frames.close(reason);
    });
  }

  sendText(text: string): void {
    this.#sendPooled(this.#writer.text(text));
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string, opening?: FrameOpening): void {
    this.#sendPooled(this.#writer.chunk(head, bytes, tail, opening));
  }

  sendBlock(text: string, bytes: Uint8Array): void {
    if (!this.#stdio) {
      this.#sendPooled(this.#writer.block(text, bytes));
      return;
    }
    this.#sendPooled(this.#writer.blockHead(text, bytes.length));
    this.native.sendBytes(this.socket, bytes);
  }

  #sendPooled(frame: Buffer): void {
    this.sendFrame(frame);
    // The addon has copied it.
    frameBufferPool.release(frame);
  }

  destroy(): void {
    this.#isEnded = true;
    this.native.destroySocket(this.socket);
    this.#stdio?.end();
  }
}

/**
 * Connects the socket of a client. Returns null for a host name, and for a path that is too long. Throws the error of a
 * failed connection that is known at once.
 */
export function connectNativeSocket(native: NativeAddon, address: ListenAddress): NativeClientSocket | null {
  const [host, port] = "path" in address ? [address.path, null] : [address.host, address.port];
  const target = port === null ? host : `${host}:${port}`;
  const socket = native.connectSocket(host, port);
  if (socket === null) return null;
  if (typeof socket === "number") throw socketError(socket, "connect", target);
  return new NativeClientSocket(native, socket, target);
}

/** Returns the error of a failed socket, with the text and members that Node's sockets give it. */
function socketError(errno: number, syscall: string, target: string): Error {
  const code = systemErrors().getSystemErrorName(-errno);
  // The first read or write reports why a socket could not connect.
  const failed = code === "ECONNRESET" || code === "EPIPE" ? syscall : "connect";
  const message = failed === "connect" ? `connect ${code} ${target}` : `${failed} ${code}`;
  return Object.assign(new Error(message), { errno: -errno, code, syscall: failed });
}
