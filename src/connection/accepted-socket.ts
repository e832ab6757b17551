import type { Socket } from "node:net";
import type { FrameSocket } from "./frame-socket.ts";

export interface AcceptedSocketEvents {
  bytes(chunk: Buffer): void;
  /** Called when the peer ends its side or the socket closes. */
  end(): void;
}

export interface FrameOptions {
  maxMessageBytes: number;
  /** Queue limit: above it the socket stops reading, so that a peer that reads no responses cannot request more. */
  maxQueuedBytes: number;
  /** Bytes of frames that arrived together with the handshake. */
  received: Buffer;
}

/** Certificate of a TLS client. The subject has the form `O=Example,CN=alice`, with the escapes of RFC 2253. */
export type PeerCertificate =
  | { type: "missing" }
  | { type: "invalid"; reason: string }
  | { type: "valid"; subject: string; expiresAtMs: number };

/** An accepted socket before its upgrade to WebSocket. */
export interface AcceptedSocket {
  /** Name of the peer in error messages: `127.0.0.1:5000`, or `unix`. */
  readonly peerName: string;
  /** User id of the peer of a Unix socket; null if unknown. */
  readonly peerUid: number | null;
  /** Absent if the listener requests no client certificate. */
  readonly peerCertificate?: PeerCertificate | undefined;
  /** Resolves when the socket closes, also after an upgrade. */
  readonly closed: Promise<void>;
  /** Starts delivering events. Called once. */
  start(events: AcceptedSocketEvents): void;
  send(bytes: Buffer): void;
  /** Sends the queue and closes this side. Discards further input. */
  end(): void;
  /** Closes the socket immediately. */
  destroy(): void;
  /**
   * Returns a Node socket for Node's HTTP server, which reads `received` first, or null if the socket is closed. Must be
   * called before the first `send`. Stops the events of `start`; `closed` still resolves.
   */
  detachToNode(received: Buffer): Socket | null;
  /** Switches to WebSocket frames, the first of them in `received`. Stops the events of `start`. */
  upgrade(options: FrameOptions): FrameSocket;
}

/** A TCP address and port, or the path of a Unix socket. */
export type ListenAddress = { host: string; port: number } | { path: string };

export interface Listener {
  /** Bound TCP port; null for a Unix socket. */
  readonly port: number | null;
  /** Stops accepting connections. `replaced`: another server already listens on the same socket. */
  close(reason?: "replaced"): void;
}

/** Starts a listener. Rejects if the address cannot be bound. */
export type ListenFunction = (
  address: ListenAddress,
  onConnection: (socket: AcceptedSocket) => void,
) => Promise<Listener>;

/** Maximum connections in the kernel's accept queue. */
export const LISTEN_BACKLOG = 1024;
