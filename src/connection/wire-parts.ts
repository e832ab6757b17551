import type { AcceptedSocket, ListenAt, Listener } from "./accepted-socket.ts";
import { type ByteCodec, plainByteCodec } from "./byte-codec.ts";
import { nodeListener } from "./node-socket-listener.ts";

/** What a server's connections go by: the loops for their bytes, and the sockets they come in by. */
export interface Wire {
  readonly codec: ByteCodec;
  readonly listenAt: ListenAt;
  /** Listens on a socket that was handed over; absent where that cannot be done. */
  readonly listenOn?:
    | ((descriptor: number, onConnection: (socket: AcceptedSocket) => void) => Promise<Listener>)
    | undefined;
  /** Whether its sockets know the user of a unix socket's peer. */
  readonly tellsPeerUid: boolean;
}

/** With nothing but Node. */
export const nodeWire: Wire = {
  codec: plainByteCodec,
  listenAt: nodeListener(plainByteCodec),
  tellsPeerUid: false,
};
