import type { Readable, Writable } from "node:stream";
import type { ByteCodec } from "../../connection/byte-codec.ts";
import { LineConnection } from "../../connection/line-connection.ts";
import { connectWebSocket } from "../../connection/websocket-client.ts";
import {
  DEFAULT_CONNECT_TIMEOUT_MS,
  type ExecServerClientOptions,
  ExecServerClient as UniversalClient,
} from "../exec-server-client.ts";
import { JsonRpcChannel } from "../rpc/json-rpc-channel.ts";
import type { OpenChannel } from "../rpc/rpc-channel.ts";
import { parseConnectUrl, type ServerTarget } from "./connect-url.ts";
import { rejectPlaintextToken } from "./plaintext-token.ts";

export interface SocketClientOptions extends ExecServerClientOptions {
  /** Maximum time to open the connection. Default 10 s. */
  connectTimeoutMs?: number;
  /** Sent as `Authorization: Bearer …`. */
  authToken?: string | undefined;
  /** Faster byte codec of the native addon, if available. */
  codec?: ByteCodec | undefined;
  /** Additional trusted certificates for `wss://`, in PEM. */
  tlsCa?: string | undefined;
  /** Allows `authToken` over plain `ws://` to another host, where the network can read it. */
  insecurePlainToken?: boolean | undefined;
}

export interface WebSocketClientOptions extends SocketClientOptions {
  /**
   * `ws://HOST:PORT`, `wss://HOST:PORT`, `unix:///path/of/socket`; or a command that runs `procwire connect`:
   * `ssh://[USER@]HOST[:PORT]`, `docker://CONTAINER`, `exec:COMMAND`.
   */
  url: string;
}

export interface UnixClientOptions extends SocketClientOptions {
  /** Path of the socket that a server listens on. */
  path: string;
}

/** Maximum time to open a pipe: a user may have to enter a password. */
const PIPE_TIMEOUT_MS = 120_000;

/** Returns a function that opens a connection to this URL. */
function channelOpener(options: WebSocketClientOptions): OpenChannel {
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
      if (authToken !== undefined && !options.insecurePlainToken) rejectPlaintextToken(url);
      return new JsonRpcChannel(await connectWebSocket({ ...common, signal }), events);
    };
  }
  const { argv, reconnectArgv } = target;
  let isFirst = true;
  return async (events, signal) => {
    const timeoutMs = isFirst ? (options.connectTimeoutMs ?? PIPE_TIMEOUT_MS) : connectTimeoutMs;
    // Loaded only here, because most servers are reached through a socket.
    const { openPipeTransport } = await import("./pipe-transport.ts");
    const stream = await openPipeTransport({ url, argv: isFirst ? argv : reconnectArgv, timeoutMs, signal });
    isFirst = false;
    try {
      return new JsonRpcChannel(await connectWebSocket({ ...common, signal, stream }), events);
    } catch (error) {
      stream.destroy();
      throw error;
    }
  };
}

/** The client with all transports of Node. */
export class NodeExecServerClient extends UniversalClient {
  /**
   * Connects through a socket, or through a command such as ssh.
   *
   * @example
   * await using client = await ExecServerClient.connectWebSocket({
   *   url: "ws://127.0.0.1:7070",
   *   authToken: process.env.PROCWIRE_TOKEN,
   * });
   */
  static connectWebSocket(options: WebSocketClientOptions): Promise<UniversalClient> {
    return NodeExecServerClient.withTransport({ connect: channelOpener(options), canReconnect: true }, options);
  }

  /**
   * Connects through a Unix socket.
   *
   * @example
   * await using client = await ExecServerClient.connectUnix({ path: "/run/procwire.sock" });
   */
  static connectUnix(options: UnixClientOptions): Promise<UniversalClient> {
    return NodeExecServerClient.connectWebSocket({ ...options, url: `unix://${options.path}` });
  }

  /**
   * Connects through a pair of line-based streams, such as stdout and stdin of a server process. They cannot be opened
   * again, so losing them is final.
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
    const connect: OpenChannel = async (events) =>
      new JsonRpcChannel(new LineConnection(input, output, { label: "exec-server stdio", codec }), events);
    return NodeExecServerClient.withTransport({ connect, canReconnect: false }, options);
  }
}
