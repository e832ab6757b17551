import { getSystemErrorMessage, getSystemErrorName } from "node:util";
import type { AcceptedSocket, AcceptedSocketEvents, ListenAt } from "../connection/accepted-socket.ts";
import { LISTEN_BACKLOG } from "../connection/accepted-socket.ts";
import type { FrameSocket, FrameSocketEvents, InputRoutes } from "../connection/frame-socket.ts";

/** A socket as the addon knows it. Nothing can be done with it but to hand it back. */
type SocketHandle = object;

/** The addon's functions for sockets; `native/addon.cc` has the same list. */
export interface NativeSockets {
  /** Port -1: the host is a unix socket's path. Answers the listener with its real port, or an errno. */
  listenAt(
    host: string,
    port: number,
    backlog: number,
    onConnection: (socket: SocketHandle, peerName: string) => void,
  ): [listener: object, port: number] | number;
  closeListener(listener: object): void;
  /** Begins to read. */
  startSocket(socket: SocketHandle, onEvent: NativeSocketListener): void;
  /** What comes from here on are frames; `received` was told already. */
  carryFrames(socket: SocketHandle, maxMessageBytes: number, received: Uint8Array): void;
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

/** Listens in the addon: what connects is read and written there. */
export function nativeListener(native: NativeSockets): ListenAt {
  return async (address, onConnection) => {
    const [host, port] = "path" in address ? [address.path, -1] : [address.host, address.port];
    const made = native.listenAt(host, port, LISTEN_BACKLOG, (socket, peerName) =>
      onConnection(new NativeSocket(native, socket, peerName)),
    );
    if (typeof made === "number") {
      const name = getSystemErrorName(-made);
      throw Object.assign(new Error(`listen ${name}: ${getSystemErrorMessage(-made)}`), { code: name });
    }
    const [listener, realPort] = made;
    return { port: realPort, close: () => native.closeListener(listener) };
  };
}

/**
 * A connection that the native addon reads and writes, first as bytes, then as frames. What goes in and out for a process
 * with a route, and all the sending, costs no turn of Node's streams.
 */
class NativeSocket implements AcceptedSocket, FrameSocket {
  readonly peerName: string;
  readonly closed: Promise<void>;
  readonly inputRoutes: InputRoutes;
  readonly #native: NativeSockets;
  readonly #socket: SocketHandle;
  #wasClosed: () => void = () => undefined;
  #accepted: AcceptedSocketEvents | null = null;
  #frames: FrameSocketEvents | null = null;
  #upgrade: { maxMessageBytes: number; received: Buffer } | null = null;

  constructor(native: NativeSockets, socket: SocketHandle, peerName: string) {
    this.#native = native;
    this.#socket = socket;
    this.peerName = peerName;
    this.closed = new Promise((resolve) => {
      this.#wasClosed = resolve;
    });
    this.inputRoutes = {
      route: (processId, input) => native.routeInput(socket, processId, input),
      unroute: (processId) => native.unrouteInput(socket, processId),
    };
  }

  start(events: AcceptedSocketEvents): void {
    this.#accepted = events;
    this.#native.startSocket(this.#socket, (event, first, second, third, fourth) => {
      if (this.#frames) this.#tellFrames(this.#frames, event, first, second, third, fourth);
      else if (this.#accepted) this.#tellBytes(this.#accepted, event, first);
      if (event === NativeSocketEvent.close) this.#wasClosed();
    });
  }

  upgrade(options: { maxMessageBytes: number; received: Buffer }): FrameSocket {
    this.#accepted = null;
    this.#upgrade = options;
    return this;
  }

  open(events: FrameSocketEvents): void {
    this.#frames = events;
    if (this.#upgrade)
      this.#native.carryFrames(this.#socket, this.#upgrade.maxMessageBytes, this.#upgrade.received);
    this.#upgrade = null;
  }

  send(bytes: Buffer): void {
    this.#native.sendBytes(this.#socket, bytes);
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
    this.#wasClosed();
  }

  #tellBytes(events: AcceptedSocketEvents, event: number, first: unknown): void {
    if (event === NativeSocketEvent.bytes && first instanceof Buffer) events.bytes(first);
    if (event === NativeSocketEvent.end || event === NativeSocketEvent.close) events.end();
  }

  #tellFrames(
    events: FrameSocketEvents,
    event: number,
    first: unknown,
    second: unknown,
    third: unknown,
    fourth: unknown,
  ): void {
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
