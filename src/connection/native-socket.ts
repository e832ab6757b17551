import type { Socket } from "node:net";
import { getSystemErrorName } from "node:util";
import type { FrameSocket, FrameSocketEvents, InputRoutes } from "./frame-socket.ts";

/** A socket as the addon knows it. Nothing can be done with it but to hand it back. */
type SocketHandle = object;

/** The addon's functions for sockets; `native/addon.cc` has the same list. */
export interface NativeSockets {
  /** The descriptor stays its owner's: the socket has one of its own from then on. Undefined when there is none left. */
  adoptSocket(fd: number, maxMessageBytes: number, onEvent: NativeSocketListener): SocketHandle | undefined;
  openSocket(socket: SocketHandle, received: Uint8Array): void;
  sendText(socket: SocketHandle, text: string): void;
  sendChunk(socket: SocketHandle, head: string, bytes: Uint8Array, tail: string): void;
  sendBytes(socket: SocketHandle, bytes: Uint8Array): void;
  pauseSocket(socket: SocketHandle): void;
  resumeSocket(socket: SocketHandle): void;
  endSocket(socket: SocketHandle): void;
  destroySocket(socket: SocketHandle): void;
  queuedBytes(socket: SocketHandle): number;
  receivedBytes(socket: SocketHandle): number;
  /** `input` is a child of the same addon. */
  routeInput(socket: SocketHandle, processId: string, input: object): void;
  unrouteInput(socket: SocketHandle, processId: string): void;
}

export type NativeSocketListener = (
  event: number,
  first?: unknown,
  second?: unknown,
  third?: unknown,
  fourth?: unknown,
) => void;

/** `native/socket.h` has the same numbers. */
const NativeSocketEvent = {
  text: 0,
  message: 1,
  bytes: 2,
  write: 3,
  drain: 4,
  end: 5,
  close: 6,
} as const;

/**
 * Frames over a socket that the native addon reads and writes. What goes in and out for a process with a route, and all
 * the sending, costs no turn of Node's streams.
 */
export class NativeSocket implements FrameSocket {
  readonly inputRoutes: InputRoutes;
  readonly #native: NativeSockets;
  readonly #socket: SocketHandle;
  readonly #head: Buffer;
  #events: FrameSocketEvents | null = null;

  /**
   * Takes a connection over from Node's socket, which lets go of it. `head` is what that had received already. Null
   * where that cannot be; then nothing has changed.
   */
  static adopt(
    native: NativeSockets,
    stream: Socket,
    maxMessageBytes: number,
    head: Buffer,
  ): NativeSocket | null {
    const fd = descriptorOf(stream);
    if (fd === null) return null;
    let made: NativeSocket | null = null;
    const socket = native.adoptSocket(fd, maxMessageBytes, (event, first, second, third, fourth) => {
      if (made) made.#tell(event, first, second, third, fourth);
    });
    if (!socket) return null;
    made = new NativeSocket(native, socket, head);
    // Closes Node's descriptor alone: the connection lives on in the other.
    stream.destroy();
    return made;
  }

  private constructor(native: NativeSockets, socket: SocketHandle, head: Buffer) {
    this.#native = native;
    this.#socket = socket;
    this.#head = head;
    this.inputRoutes = {
      route: (processId, input) => native.routeInput(socket, processId, input),
      unroute: (processId) => native.unrouteInput(socket, processId),
    };
  }

  open(events: FrameSocketEvents): void {
    this.#events = events;
    this.#native.openSocket(this.#socket, this.#head);
  }

  sendText(text: string): void {
    this.#native.sendText(this.#socket, text);
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string): void {
    this.#native.sendChunk(this.#socket, head, bytes, tail);
  }

  sendFrame(frame: Buffer): void {
    this.#native.sendBytes(this.#socket, frame);
  }

  get queuedBytes(): number {
    return this.#native.queuedBytes(this.#socket);
  }

  get receivedBytes(): number {
    return this.#native.receivedBytes(this.#socket);
  }

  pause(): void {
    this.#native.pauseSocket(this.#socket);
  }

  resume(): void {
    this.#native.resumeSocket(this.#socket);
  }

  end(): void {
    this.#native.endSocket(this.#socket);
  }

  destroy(): void {
    this.#native.destroySocket(this.#socket);
  }

  #tell(event: number, first: unknown, second: unknown, third: unknown, fourth: unknown): void {
    const events = this.#events;
    if (!events) return;
    switch (event) {
      case NativeSocketEvent.text:
        if (typeof first === "string") events.text(first);
        return;
      case NativeSocketEvent.message:
        if (first instanceof Buffer) events.message(first);
        return;
      case NativeSocketEvent.bytes:
        if (first instanceof Buffer) events.bytes(first);
        return;
      case NativeSocketEvent.write:
        if (
          (typeof first === "string" || typeof first === "number") &&
          typeof second === "string" &&
          fourth instanceof Uint8Array
        ) {
          const writeId = typeof third === "string" ? { writeId: third } : {};
          events.write(first, { processId: second, ...writeId, chunk: fourth });
        }
        return;
      case NativeSocketEvent.drain:
        events.drain();
        return;
      case NativeSocketEvent.end:
        events.end();
        return;
      case NativeSocketEvent.close:
        events.close(
          typeof first === "number" && first !== 0 ? `${second} ${getSystemErrorName(-first)}` : null,
        );
        return;
    }
  }
}

/** Node has no public name for it; where it is not found, the socket stays with Node. */
function descriptorOf(socket: Socket): number | null {
  const handle: unknown = Reflect.get(socket, "_handle");
  const fd: unknown = typeof handle === "object" && handle !== null ? Reflect.get(handle, "fd") : null;
  return typeof fd === "number" && fd >= 0 ? fd : null;
}
