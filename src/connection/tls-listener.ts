import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { AcceptedSocket, ListenAddress, Listener, PeerCertificate } from "./accepted-socket.ts";
import { LISTEN_BACKLOG } from "./accepted-socket.ts";
import type { ByteCodec } from "./byte-codec.ts";
import { nodeSocket, whenListening, wrapListener } from "./node-socket-listener.ts";

/** Certificate and private key of a server in PEM. */
export interface TlsCredentials {
  cert: string;
  key: string;
  /** Certificates of the authorities of clients in PEM. If present, the listener requests client certificates. */
  ca?: string | undefined;
  /** Lists of revoked client certificates in PEM. */
  crl?: string | undefined;
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
  const requestCert = credentials.ca !== undefined;
  const { SSL_OP_NO_TICKET } = process.getBuiltinModule("node:crypto").constants;
  const handshakes = new Set<Socket>();
  const server = createServer(
    {
      ...credentials,
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      noDelay: true,
      allowHalfOpen: true,
      requestCert,
      // The gateway rejects the client with a reason, which an alert of the handshake does not have.
      rejectUnauthorized: false,
      // A resumed TLS session would skip the check of the certificate.
      secureOptions: requestCert ? SSL_OP_NO_TICKET : undefined,
    },
    (stream) =>
      onConnection(nodeSocket(stream, codec, { peerCertificate: requestCert ? peerCertificateOf(stream) : undefined })),
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
      server.setSecureContext({ ...next, secureOptions: requestCert ? SSL_OP_NO_TICKET : undefined });
    },
  };
}

/** Descriptions of OpenSSL's verification errors. */
const VERIFY_ERRORS: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: "it has expired",
  CERT_NOT_YET_VALID: "it is not valid yet",
  CERT_REVOKED: "it was revoked",
  CRL_HAS_EXPIRED: "the server's list of revoked certificates (--tls-client-crl) has expired",
  UNABLE_TO_GET_CRL: "the server has no list of revoked certificates (--tls-client-crl) for its authority",
  INVALID_PURPOSE: "it is not for clients (extended key usage)",
};

function peerCertificateOf(stream: TLSSocket): PeerCertificate {
  const certificate = stream.getPeerX509Certificate();
  if (!certificate) return { type: "missing" };
  if (!stream.authorized) {
    const code = String(stream.authorizationError);
    return { type: "invalid", reason: VERIFY_ERRORS[code] ?? `its authority is not accepted (${code})` };
  }
  // OpenSSL escapes commas and line breaks within a value.
  const subject = certificate.subject?.replaceAll("\n", ",");
  if (!subject) return { type: "invalid", reason: "it has no subject" };
  return { type: "valid", subject, expiresAtMs: certificate.validToDate.getTime() };
}
