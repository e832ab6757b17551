import type { Socket } from "node:net";
import { type AcceptedSocket, LISTEN_BACKLOG, type ListenAddress, type Listener } from "./accepted-socket.ts";
import type { ByteCodec } from "./byte-codec.ts";
import { nodeSocket, whenListening, wrapListener } from "./node-socket-listener.ts";

/** Certificate and private key of a server in PEM. */
export interface TlsCredentials {
  cert: string;
  key: string;
}

export interface TlsListener extends Listener {
  /** Replaces the credentials for new connections. Throws if they are invalid; the previous ones then stay in use. */
  reload(credentials: TlsCredentials): void;
}

/** Maximum time of a handshake, so that idle sockets cannot pile up. */
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** Maximum concurrent handshakes, which cost memory and time before authentication. Above it, the oldest is closed. */
const MAX_HANDSHAKES = 256;

/** Listens with node:tls, which is loaded only if TLS is enabled. */
export async function listenTls(
  address: ListenAddress,
  credentials: TlsCredentials,
  codec: ByteCodec,
  onConnection: (socket: AcceptedSocket) => void,
): Promise<TlsListener> {
  const { createServer } = process.getBuiltinModule("node:tls");
  const handshakes = new Set<Socket>();
  const server = createServer(
    { ...credentials, handshakeTimeout: HANDSHAKE_TIMEOUT_MS, noDelay: true, allowHalfOpen: true },
    (stream) => onConnection(nodeSocket(stream, codec)),
  );
  server.on("connection", (raw: Socket) => {
    const [oldest] = handshakes;
    if (oldest && handshakes.size >= MAX_HANDSHAKES) oldest.destroy();
    handshakes.add(raw);
    raw.once("close", () => handshakes.delete(raw));
    // The server closes a socket after a failed handshake. The peer reports the cause.
    raw.on("error", () => undefined);
  });
  server.on("secureConnection", (stream) => {
    for (const raw of handshakes)
      if (raw.remotePort === stream.remotePort && raw.remoteAddress === stream.remoteAddress) handshakes.delete(raw);
  });
  server.on("tlsClientError", (_error, stream) => stream.destroy());
  await whenListening(server, () => server.listen({ ...address, backlog: LISTEN_BACKLOG }));
  return {
    ...wrapListener(server),
    reload: (next) => {
      // Validates first: a failed setSecureContext would leave the server without a context.
      process.getBuiltinModule("node:tls").createSecureContext(next);
      server.setSecureContext(next);
    },
  };
}
