import type { AcceptedSocket, Listener, ListenFunction } from "./accepted-socket.ts";
import { type ByteCodec, nodeByteCodec } from "./byte-codec.ts";
import { nodeListener } from "./node-socket-listener.ts";

/** Sockets and codec of a server: native or Node. */
export interface SocketProvider {
  readonly codec: ByteCodec;
  readonly listenAt: ListenFunction;
  /** Listens on an inherited socket. Absent without the native addon. */
  readonly listenOnFd?:
    | ((descriptor: number, onConnection: (socket: AcceptedSocket) => void) => Promise<Listener>)
    | undefined;
  /** Whether accepted sockets report the uid of a Unix socket's peer. */
  readonly reportsPeerUid: boolean;
}

/** The provider without the native addon. */
export const nodeSocketProvider: SocketProvider = {
  codec: nodeByteCodec,
  listenAt: nodeListener(nodeByteCodec),
  reportsPeerUid: false,
};
