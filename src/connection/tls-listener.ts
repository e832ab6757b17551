import type { Socket } from "node:net";
import type { AcceptedSocket, ListenAddress, Listener } from "./accepted-socket.ts";
import { LISTEN_BACKLOG } from "./accepted-socket.ts";
import type { ByteCodec } from "./byte-codec.ts";
import { listenerOf, listening, nodeSocket } from "./node-socket-listener.ts";

/** What a server proves by who it is; PEM. */
export interface TlsMaterial {
  cert: string;
  key: string;
}

export interface TlsListener extends Listener {
  /** For connections from now on. Throws when it is no certificate with its key; then the one before stays. */
  renew(material: TlsMaterial): void;
}

/** A peer that does not get on with its handshake must not stay for ever. */
const HANDSHAKE_WITHIN_MS = 10_000;
/** Handshakes at once: each costs memory and time before anybody is known. Beyond it the oldest goes. */
const MAX_HANDSHAKES = 256;

/** Listens with node:tls. It is loaded by the server that asks for it alone. */
export async function listenTls(
  address: ListenAddress,
  material: TlsMaterial,
  codec: ByteCodec,
  onConnection: (socket: AcceptedSocket) => void,
): Promise<TlsListener> {
  const { createServer } = process.getBuiltinModule("node:tls");
  const handshakes = new Set<Socket>();
  const server = createServer(
    { ...material, handshakeTimeout: HANDSHAKE_WITHIN_MS, noDelay: true, allowHalfOpen: true },
    (stream) => onConnection(nodeSocket(stream, codec)),
  );
  server.on("connection", (raw: Socket) => {
    const [oldest] = handshakes;
    if (oldest && handshakes.size >= MAX_HANDSHAKES) oldest.destroy();
    handshakes.add(raw);
    raw.once("close", () => handshakes.delete(raw));
    // One that failed its handshake is closed by the server; what went wrong is the peer's to tell.
    raw.on("error", () => undefined);
  });
  server.on("secureConnection", (stream) => {
    for (const raw of handshakes)
      if (raw.remotePort === stream.remotePort && raw.remoteAddress === stream.remoteAddress)
        handshakes.delete(raw);
  });
  server.on("tlsClientError", (_error, stream) => stream.destroy());
  await listening(server, () => server.listen({ ...address, backlog: LISTEN_BACKLOG }));
  return {
    ...listenerOf(server),
    renew: (next) => {
      // Looked at first: a server whose context could not be set would have none.
      process.getBuiltinModule("node:tls").createSecureContext(next);
      server.setSecureContext(next);
    },
  };
}
