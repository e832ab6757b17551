import { frameBufferPool } from "../connection/frame-buffer-pool.ts";
import type { CommandStdio, FrameOpening, FrameSocket, FrameSocketEvents } from "../connection/frame-socket.ts";
import { FrameWriter } from "../connection/frame-writer.ts";
import { type NativeAddon, NativeEventError, type NativeSocket } from "./addon.ts";
import { NativeFrameSocket } from "./native-frame-socket.ts";
import { closeProblem, nativeCodec } from "./native-sockets.ts";

/** The connection of a client through the stdio of a command. The addon reads and writes the frames. */
export class NativeClientSocket extends NativeFrameSocket implements FrameSocket {
  readonly #stdio: CommandStdio;
  readonly #writer: FrameWriter;
  #received: Buffer;
  readonly #maxMessageBytes: number;
  #isEnded = false;

  /** Takes a socket of `openClientSocket`. `received` holds frame bytes that arrived with the handshake. */
  constructor(
    native: NativeAddon,
    socket: NativeSocket,
    stdio: CommandStdio,
    received: Buffer,
    maxMessageBytes: number,
  ) {
    super(native, socket);
    this.#stdio = stdio;
    this.#received = received;
    this.#maxMessageBytes = maxMessageBytes;
    // Masking protects proxies, and a pipe has none. The key 0 changes no byte.
    this.#writer = new FrameWriter("client", nativeCodec(native), frameBufferPool, () => 0);
  }

  open(events: FrameSocketEvents): void {
    this.native.startSocket(this.socket, {
      onData: (type, data) => {
        if (type === "text") events.text(data);
        else if (type === "message") events.message(data, "text");
        else if (type === "binary") events.message(data, "binary");
        else events.bytes(data);
      },
      onWrite: () => undefined,
      onEvent: (event) => {
        if (event.type === "drain") events.drain();
        else if (event.type === "end") this.#onEnded(events, null);
        else if (event.type === "close") this.#onEnded(events, closeProblem(event));
        else {
          // An event was lost, so the connection cannot continue.
          this.destroy();
          events.close(new NativeEventError("socket", event).message);
        }
      },
    });
    const received = this.#received;
    this.#received = Buffer.alloc(0);
    this.native.upgradeToFrames(this.socket, this.#maxMessageBytes, Number.MAX_SAFE_INTEGER, received);
  }

  /** Reports the end of the connection once. A failure of the command is its reason. */
  #onEnded(events: FrameSocketEvents, problem: string | null): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    void this.#stdio.ended.then((failure) => {
      const reason = failure ?? problem;
      if (reason === null) events.end();
      else events.close(reason);
    });
  }

  sendText(text: string): void {
    this.#sendPooled(this.#writer.text(text));
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string, opening?: FrameOpening): void {
    this.#sendPooled(this.#writer.chunk(head, bytes, tail, opening));
  }

  sendBlock(text: string, bytes: Uint8Array): void {
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
    this.#stdio.end();
  }
}
