import type { ClientRequest, RequestOptions } from "node:http";
import type { Duplex } from "node:stream";
import { TimeoutError } from "../async/deadline.ts";
import { toError } from "../base/error-message.ts";
import { type ByteCodec, nodeByteCodec } from "./byte-codec.ts";
import type { Connection } from "./connection.ts";
import { StreamSocket } from "./stream-socket.ts";
import { explainTlsError } from "./tls-error.ts";
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

export async function connectWebSocket(options: WebSocketConnectOptions): Promise<Connection> {
  const target = parseTarget(options);
  // An import would evaluate node:http's WebSocket export, which loads a complete HTTP library.
  const { request } = process.getBuiltinModule(target.secure ? "node:https" : "node:http");
  const key = randomKey();
  const { promise, resolve, reject } = Promise.withResolvers<Connection>();
  const headers = {
    ...options.headers,
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": key,
  };
  let outgoing: ClientRequest;
  try {
    outgoing = request({ ...target.request, headers, signal: options.signal });
  } catch (error) {
    // Node checks the certificate and key of the client before it connects.
    throw explainTlsError(toError(error), options.url);
  }
  const timeoutMs = options.connectTimeoutMs ?? 10_000;
  const timer = setTimeout(
    () => outgoing.destroy(new TimeoutError(`a connection to ${options.url}`, timeoutMs)),
    timeoutMs,
  );
  outgoing.on("upgrade", (response, socket: Duplex, head) => {
    if (response.headers["sec-websocket-accept"] !== websocketAcceptKey(key)) {
      socket.destroy();
      reject(new Error(`websocket upgrade ${options.url}: the response has a wrong sec-websocket-accept`));
      return;
    }
    if ("setNoDelay" in socket && typeof socket.setNoDelay === "function") socket.setNoDelay(true);
    resolve(
      new WebSocketConnection(new StreamSocket(socket, "client", options.codec ?? nodeByteCodec, { head }), {
        label: `exec-server websocket ${options.url}`,
        role: "client",
        maxMessageBytes: options.maxMessageBytes,
        codec: options.codec,
      }),
    );
  });
  outgoing.on("response", (response) => {
    let body = "";
    response.setEncoding("utf8");
    response.on("data", (text: string) => {
      if (body.length < MAX_BODY_CHARS) body += text.slice(0, MAX_BODY_CHARS - body.length);
    });
    response.on("end", () => reject(new UpgradeRefusedError(options.url, response.statusCode ?? 0, body)));
    response.on("error", reject);
  });
  outgoing.on("error", (error) => reject(explainTlsError(error, options.url)));
  outgoing.end();
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
  }
}

/** Returns 16 random bytes that identify a handshake. Not a secret. */
function randomKey(): string {
  return Buffer.from(Array.from({ length: 16 }, () => Math.floor(Math.random() * 256))).toString("base64");
}

interface Target {
  secure: boolean;
  request: RequestOptions & Pick<WebSocketConnectOptions, "cert" | "key"> & { ca?: string[] | undefined };
}

function parseTarget({ url, ca, cert, key, stream }: WebSocketConnectOptions): Target {
  if (stream) return { secure: false, request: { createConnection: () => stream, host: "localhost", path: "/" } };
  if (url.startsWith("unix://"))
    return { secure: false, request: { socketPath: url.slice("unix://".length), path: "/" } };
  const parsed = new URL(url);
  if (parsed.protocol !== "ws:" && parsed.protocol !== "wss:") {
    throw new Error(
      `unsupported server URL \`${url}\`; expected \`ws://HOST:PORT\`, \`wss://HOST:PORT\` or \`unix://PATH\``,
    );
  }
  const secure = parsed.protocol === "wss:";
  return {
    secure,
    request: {
      host: parsed.hostname.replace(/^\[|\]$/g, ""),
      port: parsed.port === "" ? (secure ? 443 : 80) : Number(parsed.port),
      path: `${parsed.pathname}${parsed.search}`,
      cert: secure ? cert : undefined,
      key: secure ? key : undefined,
      // In addition to the system's certificates.
      ca: secure && ca !== undefined ? [...process.getBuiltinModule("node:tls").getCACertificates(), ca] : undefined,
    },
  };
}
