import type { Socket } from "node:net";
// Not by named imports: an older Node lacks one of them, and would report that instead of what `needs-node.ts` says.
import type {
  AcceptedSocket,
  AcceptedSocketEvents,
  FrameOptions,
  ListenAt,
} from "../connection/accepted-socket.ts";
import { LISTEN_BACKLOG } from "../connection/accepted-socket.ts";
import type { ByteCodec } from "../connection/byte-codec.ts";
import type { FrameSocket, FrameSocketEvents } from "../connection/frame-socket.ts";
import type { StraightWay } from "../connection/straight-way.ts";
import type { Wire } from "../connection/wire-parts.ts";
import { type NativeAddon, NativeEventError, type NativeSocket } from "./addon.ts";

/** What a server's connections use where the addon is loaded: its byte loops, and sockets that it reads and writes. */
export function nativeWire(native: NativeAddon): Wire {
  return {
    codec: nativeCodec(native),
    listenAt: nativeListener(native),
    listenOn: (descriptor, onConnection) => nativeListener(native, descriptor)({ path: "" }, onConnection),
    tellsPeerUid: true,
  };
}

export function nativeCodec(native: NativeAddon): ByteCodec {
  return {
    base64Encode: native.base64Encode,
    unmask: native.unmask,
    readWrite: (message) => {
      const found = native.readWrite(message);
      if (!found) return null;
      const [id, processId, writeId, chunk] = found;
      return { id, params: { processId, writeId, chunk } };
    },
  };
}

/** Listens in the addon, which reads and writes the connections; on a socket that listens already, if one is given. */
export function nativeListener(native: NativeAddon, descriptor = -1): ListenAt {
  return async (address, onConnection) => {
    const [host, port] = "path" in address ? [address.path, -1] : [address.host, address.port];
    const take = (socket: NativeSocket, peerName: string, peerUid: number) =>
      onConnection(new AddonSocket(native, socket, peerName, peerUid < 0 ? null : peerUid));
    const made = native.listenAt(host, port, LISTEN_BACKLOG, take, descriptor);
    if (typeof made === "number") {
      const name = systemErrors().getSystemErrorName(-made);
      const says = systemErrors().getSystemErrorMessage(-made);
      throw Object.assign(new Error(`listen ${name}: ${says}`), { code: name });
    }
    const [listener, realPort] = made;
    return { port: realPort, close: () => native.closeListener(listener) };
  };
}

/**
 * A connection that the native addon reads and writes, first as bytes, then as frames. Input for a process with a
 * straight lane, and everything that is sent, bypasses Node's streams.
 */
class AddonSocket implements AcceptedSocket, FrameSocket {
  readonly peerName: string;
  readonly peerUid: number | null;
  readonly closed: Promise<void>;
  readonly straightWay: StraightWay;
  readonly #native: NativeAddon;
  readonly #socket: NativeSocket;
  #wasClosed: () => void = () => undefined;
  #accepted: AcceptedSocketEvents | null = null;
  #frames: FrameSocketEvents | null = null;
  #upgrade: FrameOptions | null = null;
  #handedOver: Socket | null = null;

  constructor(native: NativeAddon, socket: NativeSocket, peerName: string, peerUid: number | null) {
    this.#native = native;
    this.#socket = socket;
    this.peerName = peerName;
    this.peerUid = peerUid;
    this.closed = new Promise((resolve) => {
      this.#wasClosed = resolve;
    });
    this.straightWay = {
      open: (processId, input) => native.routeInput(socket, processId, input),
      shut: (processId) => native.unrouteInput(socket, processId),
      hold: (held) => native.holdRoutes(socket, held),
    };
  }

  start(events: AcceptedSocketEvents): void {
    this.#accepted = events;
    this.#native.startSocket(this.#socket, (number, first, second, third, fourth) => {
      const event = this.#native.socketEvents[number];
      const known = this.#frames
        ? tellFrames(this.#frames, event, first, second, third, fourth)
        : this.#accepted === null || tellBytes(this.#accepted, event, first);
      if (!known)
        this.#broken(new NativeEventError("socket", event ?? number, [first, second, third, fourth]));
      if (event === "close") this.#wasClosed();
    });
  }

  handOver(received: Buffer): Socket | null {
    this.#accepted = null;
    const fd = this.#native.handOverSocket(this.#socket);
    if (fd < 0) return null;
    const { Socket } = process.getBuiltinModule("node:net");
    const stream = new Socket({ fd, readable: true, writable: true, allowHalfOpen: true });
    stream.once("close", () => this.#wasClosed());
    this.#handedOver = stream;
    if (received.length > 0) stream.unshift(received);
    return stream;
  }

  upgrade(options: FrameOptions): FrameSocket {
    this.#accepted = null;
    this.#upgrade = options;
    return this;
  }

  open(events: FrameSocketEvents): void {
    this.#frames = events;
    if (this.#upgrade) {
      const { maxMessageBytes, maxQueuedBytes, received } = this.#upgrade;
      this.#native.carryFrames(this.#socket, maxMessageBytes, maxQueuedBytes, received);
    }
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

  get sentBytes(): number {
    return this.#native.sentBytes(this.#socket);
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
    if (this.#handedOver) {
      this.#handedOver.destroy();
      return;
    }
    this.#native.destroySocket(this.#socket);
    this.#wasClosed();
  }

  /** What the peer sent is no longer known: the socket emits an error and is closed. */
  #broken({ message }: Error): void {
    const [frames, accepted] = [this.#frames, this.#accepted];
    this.destroy();
    frames?.close(message);
    accepted?.end();
  }
}

/** Handles an event of a connection that carries no frames yet; false when it is not one, or its values are wrong. */
function tellBytes(events: AcceptedSocketEvents, event: string | undefined, first: unknown): boolean {
  switch (event) {
    case "bytes":
      if (!(first instanceof Buffer)) return false;
      events.bytes(first);
      return true;
    case "end":
    case "close":
      events.end();
      return true;
    case "drain":
      return true;
    default:
      return false;
  }
}

/** The same for a connection that carries frames. */
function tellFrames(
  events: FrameSocketEvents,
  event: string | undefined,
  first: unknown,
  second: unknown,
  third: unknown,
  fourth: unknown,
): boolean {
  switch (event) {
    case "text":
      if (typeof first !== "string") return false;
      events.text(first);
      return true;
    case "message":
      if (!(first instanceof Buffer)) return false;
      events.message(first);
      return true;
    case "bytes":
      if (!(first instanceof Buffer)) return false;
      events.bytes(first);
      return true;
    case "write":
      if (typeof first !== "string" && typeof first !== "number") return false;
      if (typeof second !== "string" || !(fourth instanceof Uint8Array)) return false;
      if (third !== undefined && typeof third !== "string") return false;
      events.write(first, { processId: second, writeId: third, chunk: fourth });
      return true;
    case "drain":
      events.drain();
      return true;
    case "end":
      events.end();
      return true;
    case "close":
      if (typeof first !== "number" || typeof second !== "string") return false;
      events.close(first === 0 ? null : `${second} ${systemErrors().getSystemErrorName(-first)}`);
      return true;
    default:
      return false;
  }
}

/** Loaded when it is needed: an import of the whole of node:util reads every export of it, and some load a library each. */
function systemErrors() {
  return process.getBuiltinModule("node:util");
}
