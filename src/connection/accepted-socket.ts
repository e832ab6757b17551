import type { Socket } from "node:net";
import type { FrameSocket } from "./frame-socket.ts";

export interface AcceptedSocketEvents {
  bytes(chunk: Buffer): void;
  /** The peer sends nothing more, or is gone. */
  end(): void;
}

export interface FrameOptions {
  maxMessageBytes: number;
  /** While more than this waits to be sent, nothing is read: a peer that does not take its answers gets no more. */
  maxQueuedBytes: number;
  /** The first bytes of frames, which came with the handshake. */
  received: Buffer;
}

/** A connection that came in, before it is known what it wants: bytes both ways. */
export interface AcceptedSocket {
  /** Names the peer in error texts: `127.0.0.1:5000`, or `unix`. */
  readonly peerName: string;
  /** The user at the other end of a unix socket; null where that is not known. */
  readonly peerUid: number | null;
  /** Resolves when it is closed, also after it was upgraded. */
  readonly closed: Promise<void>;
  /** Begins to deliver events. Called once. */
  start(events: AcceptedSocketEvents): void;
  send(bytes: Buffer): void;
  /** Sends what is queued and closes its side; what still comes is thrown away. */
  end(): void;
  /** Closes at once. */
  destroy(): void;
  /**
   * Gives the connection to Node's own HTTP, with the bytes that came so far to be read first. Nothing was sent yet. No
   * event of `start` is told any more; `closed` still resolves. Null when it was closed meanwhile.
   */
  handOver(received: Buffer): Socket | null;
  /** From here on it carries frames, the first of them in `received`. No event of `start` is told any more. */
  upgrade(options: FrameOptions): FrameSocket;
}

/** Where to listen: an address and a port, or the path of a unix socket. */
export type ListenAddress = { host: string; port: number } | { path: string };

export interface Listener {
  /** The real port; 0 for a unix socket. */
  readonly port: number;
  /** Takes no more connections. Replaced: another program listens on the same socket. */
  close(reason?: "replaced"): void;
}

/** Rejects when the address cannot be used. */
export type ListenAt = (
  address: ListenAddress,
  onConnection: (socket: AcceptedSocket) => void,
) => Promise<Listener>;

/** Connections that may wait to be taken. */
export const LISTEN_BACKLOG = 1024;
