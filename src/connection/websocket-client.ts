import type { Duplex } from "node:stream";
import { TimeoutError } from "../async/deadline.ts";
import { toError } from "../base/error-message.ts";
import type { ListenAddress } from "./accepted-socket.ts";
import { type ByteCodec, nodeByteCodec } from "./byte-codec.ts";
import type { Connection } from "./connection.ts";
import type { ClientSocket, FrameSocket } from "./frame-socket.ts";
import { DEFAULT_MAX_MESSAGE_BYTES } from "./line-connection.ts";
import { StreamClientSocket } from "./stream-socket.ts";
import { explainTlsError } from "./tls-error.ts";
import { UpgradeResponse } from "./upgrade-response.ts";
import { websocketAcceptKey } from "./websocket-accept-key.ts";
import { WebSocketConnection } from "./websocket-connection.ts";

export interface WebSocketConnectOptions {
  /** `ws://host:port/path`, `wss://…`, or `unix:///path/of/socket`. */
  url: string;
  headers?: Record<string, string> | undefined;
  connectTimeoutMs?: number | undefined;
  maxMessageBytes?: number | undefined;
  codec?: ByteCodec | undefined;
  signal?: AbortSignal | undefined;
  /** CA certificates for `wss://` in addition to the system's, in PEM. */
  ca?: string | undefined;
  /** Certificate of this client with its intermediates, and its key, in PEM. */
  cert?: string | undefined;
  key?: string | undefined;
  /** Stream to use instead of a new socket. `url` then only names the connection. */
  stream?: Duplex | undefined;
  /** Moves the connection from `stream` to a faster socket after the handshake. Returns null if there is none. */
  openSocket?: ((received: Buffer, maxMessageBytes: number) => FrameSocket | null) | undefined;
}

/** The server responded with an HTTP status other than 101 to the WebSocket upgrade. */
export class UpgradeRefusedError extends Error {
  override readonly name = "UpgradeRefusedError";
  readonly status: number;

  constructor(url: string, status: number, body: string) {
    super(`${url} refused the websocket upgrade with HTTP ${status}${body ? `: ${body}` : ""}`);
    this.status = status;
  }
}

/** Maximum characters of a response body in an error message. */
const MAX_BODY_CHARS = 200;
/** Maximum bytes of a response head. Proxies add headers, but not this many. */
const MAX_HEAD_BYTES = 64 * 1024;
/** Characters that a header value may contain. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Opens a connection. Sends the upgrade itself, because loading `node:http` takes longer than a short command needs. */
export async function connectWebSocket(options: WebSocketConnectOptions): Promise<Connection> {
  const { url, signal } = options;
  const target = parseTarget(options);
  const key = randomKey();
  const request = upgradeRequest(target, {
    ...options.headers,
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": key,
  });
  signal?.throwIfAborted();
  let client: ClientSocket;
  try {
    client = target.open();
  } catch (error) {
    // Node checks the certificate and key of the client before it connects.
    throw explainTlsError(toError(error), url);
  }
  const { promise: responded, resolve, reject } = Promise.withResolvers<number>();
  const onAbort = () => reject(toError(signal?.reason));
  signal?.addEventListener("abort", onAbort, { once: true });
  const timeoutMs = options.connectTimeoutMs ?? 10_000;
  const timer = setTimeout(() => reject(new TimeoutError(`a connection to ${url}`, timeoutMs)), timeoutMs);
  try {
    const response = new UpgradeResponse(MAX_HEAD_BYTES, MAX_BODY_CHARS);
    const end = (error?: Error) => {
      if (!error && response.status !== null) resolve(response.status);
      else reject(error ?? Object.assign(new Error("socket hang up"), { code: "ECONNRESET" }));
    };
    const bytes = (chunk: Buffer) => {
      try {
        if (response.push(chunk)) end();
      } catch (error) {
        reject(error);
      }
    };
    client.start(request, { bytes, end });
    let computedKey: string | undefined;
    const acceptKey = () => (computedKey ??= websocketAcceptKey(key));
    // While the server handles the request.
    setImmediate(acceptKey);
    const status = await responded;
    const { headers, rest } = response;
    if (status !== 101) {
      // A page of another web server would fill the terminal.
      const body = /html/i.test(headers.get("content-type") ?? "") ? "" : rest.toString().trim().replace(/\s+/g, " ");
      throw new UpgradeRefusedError(url, status, body.slice(0, MAX_BODY_CHARS));
    }
    if (headers.get("sec-websocket-accept") !== acceptKey())
      throw new Error(`websocket upgrade ${url}: the response has a wrong sec-websocket-accept`);
    const { codec = nodeByteCodec, maxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES } = options;
    const socket = options.openSocket?.(rest, maxMessageBytes) ?? client.upgrade(rest, maxMessageBytes);
    return new WebSocketConnection(socket, {
      label: `exec-server websocket ${url}`,
      role: "client",
      maxMessageBytes,
      codec,
    });
  } catch (error) {
    client.destroy();
    throw explainTlsError(toError(error), url);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
  }
}

function upgradeRequest({ host, path }: Target, headers: Record<string, string>): string {
  let request = `GET ${path} HTTP/1.1\r\nhost: ${host}\r\n`;
  for (const [name, value] of Object.entries(headers)) {
    if (!HEADER_VALUE.test(value)) throw new Error(`header \`${name}\`: the value has a character that HTTP forbids`);
    request += `${name}: ${value}\r\n`;
  }
  return `${request}\r\n`;
}

/** Returns 16 random bytes that identify a handshake. Not a secret. */
function randomKey(): string {
  return Buffer.from(Array.from({ length: 16 }, () => Math.floor(Math.random() * 256))).toString("base64");
}

interface Target {
  /** Value of the `host` header. */
  host: string;
  path: string;
  open(): ClientSocket;
}

function parseTarget({ url, ca, cert, key, stream, codec = nodeByteCodec }: WebSocketConnectOptions): Target {
  // Masking protects proxies, and a pipe to the bridge of a host has none. A zero key changes no byte.
  if (stream) return { host: "localhost", path: "/", open: () => new StreamClientSocket(stream, codec, () => 0) };
  const connect = (address: ListenAddress) =>
    codec.connectSocket?.(address) ??
    new StreamClientSocket(process.getBuiltinModule("node:net").connect({ ...address, noDelay: true }), codec);
  if (url.startsWith("unix://"))
    return { host: "localhost", path: "/", open: () => connect({ path: url.slice("unix://".length) }) };
  const parsed = new URL(url);
  if (parsed.protocol !== "ws:" && parsed.protocol !== "wss:") {
    throw new Error(
      `unsupported server URL \`${url}\`; expected \`ws://HOST:PORT\`, \`wss://HOST:PORT\` or \`unix://PATH\``,
    );
  }
  const isSecure = parsed.protocol === "wss:";
  const host = parsed.hostname.replace(/^\[|\]$/g, "");
  const port = parsed.port === "" ? (isSecure ? 443 : 80) : Number(parsed.port);
  const open = () => {
    if (!isSecure) return connect({ host, port });
    const tls = process.getBuiltinModule("node:tls");
    const socket = tls.connect({
      ...{ host, port, noDelay: true },
      servername: process.getBuiltinModule("node:net").isIP(host) ? undefined : host,
      ALPNProtocols: ["http/1.1"],
      cert,
      key,
      // In addition to the system's certificates.
      ca: ca === undefined ? undefined : [...tls.getCACertificates(), ca],
    });
    // A write during the handshake would replace the OpenSSL error, with its code and reason, by EPROTO.
    socket.cork();
    return new StreamClientSocket(
      socket.once("secureConnect", () => socket.uncork()),
      codec,
    );
  };
  return { host: parsed.host, path: `${parsed.pathname}${parsed.search}`, open };
}
