import type { Socket } from "node:net";
// No named imports of Node modules: an older Node lacks some of them and would fail before `needs-node.ts` reports it.
import {
  type AcceptedSocket,
  type AcceptedSocketEvents,
  type FrameOptions,
  LISTEN_BACKLOG,
  type ListenFunction,
} from "../connection/accepted-socket.ts";
import { nodeByteCodec } from "../connection/byte-codec.ts";
import type { DirectInput } from "../connection/connection.ts";
import { FrameOpening, type FrameSocket, type FrameSocketEvents } from "../connection/frame-socket.ts";
import { FrameWriter } from "../connection/frame-writer.ts";
import type { SocketProvider } from "../connection/socket-provider.ts";
import type { Message } from "../protocol/envelope.ts";
import type { NativeAddon, NativeSocket, NativeWriteRequest } from "./addon.ts";
import { nativeCodec, systemErrors } from "./native-codec.ts";
import { NativeFrameSocket } from "./native-frame-socket.ts";

/** Builds the heads of binary blocks. Frames of a server are not masked, so it needs no codec of the addon. */
const blockFrames = new FrameWriter("server", nodeByteCodec);

/** Sockets and byte codec of a server, implemented by the addon. */
export function nativeSocketProvider(native: NativeAddon): SocketProvider {
  return {
    codec: nativeCodec(native),
    listenAt: nativeListener(native),
    listenOnFd: (descriptor, onConnection) => nativeListener(native, descriptor)({ path: "" }, onConnection),
    reportsPeerUid: true,
  };
}

/** Returns the request that the addon decoded. The schema `bytes` accepts its chunk as it is. */
function writeRequest(...[id, processId, writeId, chunk]: NativeWriteRequest): Message {
  return { type: "request", id, method: "process/write", params: { processId, writeId, chunk } };
}

/** Listens with the addon, on an inherited listening descriptor if one is given. */
export function nativeListener(native: NativeAddon, descriptor: number | null = null): ListenFunction {
  return async (address, onConnection) => {
    const [host, port] = "path" in address ? [address.path, null] : [address.host, address.port];
    const accept = (socket: NativeSocket, peerName: string, peerUid: number | null) =>
      onConnection(new NativeServerSocket(native, socket, peerName, peerUid));
    const result = native.listenAt(host, port, LISTEN_BACKLOG, accept, descriptor);
    if (typeof result === "number") {
      const name = systemErrors().getSystemErrorName(-result);
      const message = systemErrors().getSystemErrorMessage(-result);
      throw Object.assign(new Error(`listen ${name}: ${message}`), { code: name });
    }
    const [listener, boundPort] = result;
    return { port: boundPort, close: () => native.closeListener(listener) };
  };
}

/**
 * A connection that the addon reads and writes, first as bytes, then as frames. Direct input and everything that is sent
 * bypasses Node's streams.
 */
class NativeServerSocket extends NativeFrameSocket<AcceptedSocketEvents> implements AcceptedSocket, FrameSocket {
  readonly peerName: string;
  readonly peerUid: number | null;
  readonly directInput: DirectInput;
  readonly #closed = Promise.withResolvers<void>();
  readonly closed = this.#closed.promise;
  #upgrade: FrameOptions | null = null;
  #detached: Socket | null = null;

  constructor(native: NativeAddon, socket: NativeSocket, peerName: string, peerUid: number | null) {
    super(native, socket);
    this.peerName = peerName;
    this.peerUid = peerUid;
    this.directInput = {
      route: (processId, input) => native.routeDirectInput(socket, processId, input),
      unroute: (processId) => native.unrouteDirectInput(socket, processId),
      setPaused: (paused) => native.pauseDirectInput(socket, paused),
    };
  }

  start(events: AcceptedSocketEvents): void {
    this.unframed = events;
    this.native.startSocket(this.socket, {
      onData: this.onData,
      onWrite: (...request) => this.frames?.decoded(writeRequest(...request)),
      onEvent: (event) => {
        if (this.frames) this.onFrameEvent(this.frames, event);
        else if (event.type !== "drain") this.unframed?.end();
        if (event.type === "close") this.#closed.resolve();
      },
    });
  }

  detachToNode(received: Buffer): Socket | null {
    this.unframed = null;
    const fd = this.native.detachSocket(this.socket);
    if (fd === null) return null;
    const { Socket } = process.getBuiltinModule("node:net");
    const stream = new Socket({ fd, readable: true, writable: true, allowHalfOpen: true });
    stream.once("close", () => this.#closed.resolve());
    this.#detached = stream;
    if (received.length > 0) stream.unshift(received);
    return stream;
  }

  upgrade(options: FrameOptions): FrameSocket {
    this.unframed = null;
    this.#upgrade = options;
    return this;
  }

  open(events: FrameSocketEvents): void {
    this.frames = events;
    if (this.#upgrade) {
      const { maxMessageBytes, maxQueuedBytes, received } = this.#upgrade;
      this.native.upgradeToFrames(this.socket, maxMessageBytes, maxQueuedBytes, received);
    }
    this.#upgrade = null;
  }

  send(bytes: Buffer): void {
    this.native.sendBytes(this.socket, bytes);
  }

  sendText(text: string): void {
    this.native.sendText(this.socket, text);
  }

  sendChunk(head: string, bytes: Uint8Array, tail: string, opening: FrameOpening = FrameOpening.whole): void {
    this.native.sendChunk(this.socket, head, bytes, tail, opening);
  }

  sendBlock(text: string, bytes: Uint8Array): void {
    this.native.sendBytes(this.socket, blockFrames.blockHead(text, bytes.length));
    this.native.sendBytes(this.socket, bytes);
  }

  destroy(): void {
    if (this.#detached) {
      this.#detached.destroy();
      return;
    }
    this.native.destroySocket(this.socket);
    this.#closed.resolve();
  }
}
