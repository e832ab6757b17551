import type { Readable, Writable } from "node:stream";
import type { ByteCodec } from "../../connection/byte-codec.ts";
import { LineConnection } from "../../connection/line-connection.ts";
import { connectWebSocket } from "../../connection/websocket-client.ts";
import type { Connect } from "../caller.ts";
import {
  DEFAULT_CONNECT_TIMEOUT_MS,
  type ExecServerClientOptions,
  ExecServerClient as UniversalClient,
} from "../exec-server-client.ts";
import { RpcCaller } from "../rpc/json-rpc-channel.ts";
import { parseConnectUrl, type ServerTarget } from "./connect-url.ts";
import { refusePlainToken } from "./plaintext-token.ts";

export interface SocketClientOptions extends ExecServerClientOptions {
  /** How long the connection itself may take. Default 10 s. */
  connectTimeoutMs?: number;
  /** Sent as `Authorization: Bearer …`. */
  authToken?: string | undefined;
  /** Faster byte loops than Node's own, where they are at hand. */
  codec?: ByteCodec | undefined;
  /** Certificates that are trusted beside the system's, for `wss://`; PEM. */
  tlsCa?: string | undefined;
  /** Lets `authToken` go over a plain `ws://` to another host, where everybody on the way can read it. */
  insecurePlainToken?: boolean | undefined;
}

export interface WebSocketClientOptions extends SocketClientOptions {
  /**
   * `ws://HOST:PORT`, `wss://HOST:PORT`, `unix:///path/of/socket`; or a program that ends in `procwire connect`:
   * `ssh://[USER@]HOST[:PORT]`, `docker://CONTAINER`, `exec:COMMAND`.
   */
  url: string;
}

export interface UnixClientOptions extends SocketClientOptions {
  /** The path of the socket a server listens on. */
  path: string;
}

/** A person may have to type a password before a pipe is open. */
const PIPE_OPENS_WITHIN_MS = 120_000;

/** What opens a connection to this URL, each time it is called. */
function connectBy(options: WebSocketClientOptions): Connect {
  const { authToken, codec, connectTimeoutMs = DEFAULT_CONNECT_TIMEOUT_MS, tlsCa } = options;
  let target: ServerTarget;
  try {
    target = parseConnectUrl(options.url);
  } catch (error) {
    return () => Promise.reject(error);
  }
  const { url } = target;
  const headers = authToken === undefined ? undefined : { authorization: `Bearer ${authToken}` };
  const common = { url, connectTimeoutMs, headers, codec, ca: tlsCa };
  if (target.type === "socket") {
    return async (events, signal) => {
      if (authToken !== undefined && !options.insecurePlainToken) refusePlainToken(url);
      return new RpcCaller(await connectWebSocket({ ...common, signal }), events);
    };
  }
  const { argv, againArgv } = target;
  let isFirst = true;
  return async (events, signal) => {
    const timeoutMs = isFirst ? (options.connectTimeoutMs ?? PIPE_OPENS_WITHIN_MS) : connectTimeoutMs;
    // Loaded for it alone: most servers are reached by a socket.
    const { openPipe } = await import("./pipe-transport.ts");
    const stream = await openPipe({ url, argv: isFirst ? argv : againArgv, timeoutMs, signal });
    isFirst = false;
    try {
      return new RpcCaller(await connectWebSocket({ ...common, signal, stream }), events);
    } catch (error) {
      stream.destroy();
      throw error;
    }
  };
}

/** The client with every transport that Node has. */
export class ExecServerClient extends UniversalClient {
  /**
   * Connects over a WebSocket: to a socket, or through a program such as ssh.
   *
   * @example
   * await using client = await ExecServerClient.connectWebSocket({
   *   url: "ws://127.0.0.1:7070",
   *   authToken: process.env.PROCWIRE_TOKEN,
   * });
   */
  static connectWebSocket(options: WebSocketClientOptions): Promise<UniversalClient> {
    return ExecServerClient.over({ connect: connectBy(options), canReconnect: true }, options);
  }

  /**
   * Connects over a unix socket.
   *
   * @example
   * await using client = await ExecServerClient.connectUnix({ path: "/run/procwire.sock" });
   */
  static connectUnix(options: UnixClientOptions): Promise<UniversalClient> {
    return ExecServerClient.connectWebSocket({ ...options, url: `unix://${options.path}` });
  }

  /**
   * Speaks lines over a pair of streams, such as a server process's stdout and stdin. They cannot be opened again, so
   * losing them is final.
   *
   * @example
   * const client = await ExecServerClient.connectStdio(child.stdout, child.stdin);
   */
  static connectStdio(
    input: Readable,
    output: Writable,
    options: ExecServerClientOptions & { codec?: ByteCodec | undefined } = {},
  ): Promise<UniversalClient> {
    const { codec } = options;
    const connect: Connect = async (events) =>
      new RpcCaller(new LineConnection(input, output, { label: "exec-server stdio", codec }), events);
    return ExecServerClient.over({ connect, canReconnect: false }, options);
  }
}
