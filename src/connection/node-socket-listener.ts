import type { Server, Socket } from "node:net";
import {
  type AcceptedSocket,
  type AcceptedSocketEvents,
  type FrameOptions,
  LISTEN_BACKLOG,
  type Listener,
  type ListenFunction,
} from "./accepted-socket.ts";
import type { ByteCodec } from "./byte-codec.ts";
import type { FrameSocket } from "./frame-socket.ts";
import { StreamSocket } from "./stream-socket.ts";

/** Listens with Node sockets. Used without the native addon. */
export function nodeListener(codec: ByteCodec): ListenFunction {
  return async (address, onConnection) => {
    // Loaded on demand, because a server with the addon never needs it.
    const { createServer } = process.getBuiltinModule("node:net");
    const server = createServer({ noDelay: true, allowHalfOpen: true }, (stream) =>
      onConnection(nodeSocket(stream, codec)),
    );
    await whenListening(server, () => server.listen({ ...address, backlog: LISTEN_BACKLOG }));
    return wrapListener(server);
  };
}

function toPeerName({ remoteAddress, remotePort }: Socket): string {
  return remoteAddress === undefined ? "unix" : `${remoteAddress}:${remotePort}`;
}

/** Starts a server. Rejects if it cannot listen. Later errors are connections that the system did not accept. */
export function whenListening(server: Server, start: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.once("listening", () => {
      server.removeListener("error", reject);
      // Without a listener, the error would end the program.
      server.on("error", () => undefined);
      resolve();
    });
    start();
  });
}

export function wrapListener(server: Server): Listener {
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : null,
    close: () => void server.close(),
  };
}

/** Identity of a peer, which the stream alone does not have. */
type PeerIdentity = Partial<Pick<AcceptedSocket, "peerUid" | "peerName" | "peerCertificate">>;

/** Wraps a Node socket. `identity` may be the socket that `stream` was detached from. */
export function nodeSocket(stream: Socket, codec: ByteCodec, identity: PeerIdentity = {}): AcceptedSocket {
  return new NodeSocket(stream, codec, identity);
}

class NodeSocket implements AcceptedSocket {
  readonly peerName: string;
  /** Node sockets do not expose the peer's uid. */
  readonly peerUid: number | null;
  readonly peerCertificate: AcceptedSocket["peerCertificate"];
  readonly closed: Promise<void>;
  readonly #stream: Socket;
  readonly #codec: ByteCodec;
  #events: AcceptedSocketEvents | null = null;

  constructor(stream: Socket, codec: ByteCodec, { peerUid, peerName, peerCertificate }: PeerIdentity) {
    this.#stream = stream;
    this.#codec = codec;
    this.peerUid = peerUid ?? null;
    this.peerName = peerName ?? toPeerName(stream);
    this.peerCertificate = peerCertificate;
    this.closed = new Promise((resolve) => stream.once("close", () => resolve()));
    // `close` follows every error and is reported through `closed`.
    stream.on("error", () => undefined);
  }

  start(events: AcceptedSocketEvents): void {
    this.#events = events;
    this.#stream.on("data", events.bytes);
    this.#stream.on("end", events.end);
    this.#stream.on("close", events.end);
  }

  send(bytes: Buffer): void {
    this.#stream.write(bytes);
  }

  end(): void {
    this.#stream.end();
    this.#stream.resume();
  }

  destroy(): void {
    this.#stream.destroy();
  }

  detachToNode(received: Buffer): Socket | null {
    if (this.#stream.destroyed) return null;
    this.#stream.pause();
    this.#stopEvents();
    if (received.length > 0) this.#stream.unshift(received);
    return this.#stream;
  }

  upgrade({ received, maxQueuedBytes }: FrameOptions): FrameSocket {
    this.#stopEvents();
    return new StreamSocket(this.#stream, "server", this.#codec, { head: received, maxQueuedBytes });
  }

  #stopEvents(): void {
    if (!this.#events) return;
    this.#stream.off("data", this.#events.bytes);
    this.#stream.off("end", this.#events.end);
    this.#stream.off("close", this.#events.end);
  }
}
