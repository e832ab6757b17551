import type { Readable, Writable } from "node:stream";
import type { ByteCodec } from "../../connection/byte-codec.ts";
import { LineConnection } from "../../connection/line-connection.ts";
import { connectWebSocket } from "../../connection/websocket-client.ts";
import { checkArgument, checkOptions, secretText } from "../../exec/options/option-schema.ts";
import { readableKind, writableKind } from "../../exec/options/process-options.ts";
import type { ExecServerClientOptions } from "../exec-server-client.ts";
import { DEFAULT_CONNECT_TIMEOUT_MS, ExecServerClient as UniversalClient } from "../exec-server-client.ts";
import { JsonRpcChannel } from "../rpc/json-rpc-channel.ts";
import type { OpenChannel } from "../rpc/rpc-channel.ts";
import { parseConnectUrl, type ServerTarget } from "./connect-url.ts";
import { stdioOptions, unixOptions, webSocketOptions } from "./node-options.ts";
import { rejectPlaintextToken } from "./plaintext-token.ts";

export interface SocketClientOptions extends ExecServerClientOptions {
  /** Maximum time to open the connection. Default 10 s. */
  connectTimeoutMs?: number;
  /** Sent as `Authorization: Bearer …`. A function is called for each connection, so that it can return a new token. */
  authToken?: string | (() => string | undefined) | undefined;
  /** Faster byte codec of the native addon, if available. */
  codec?: ByteCodec | undefined;
  /** Additional trusted certificates for `wss://`, in PEM. */
  tlsCa?: string | undefined;
  /** Certificate of this client with its intermediates for `wss://`, in PEM. A function is called for each connection. */
  tlsCert?: string | (() => string | undefined) | undefined;
  /** Key of `tlsCert`, in PEM. */
  tlsKey?: string | (() => string | undefined) | undefined;
  /** Allows `authToken` over plain `ws://` to another host, where the network can read it. */
  insecurePlainToken?: boolean | undefined;
}

export interface WebSocketClientOptions extends SocketClientOptions {
  /**
   * `ws://HOST:PORT`, `wss://HOST:PORT`, `unix:///path/of/socket`; or a command that runs `procwire connect`:
   * `ssh://[USER@]HOST[:PORT]`, `docker://[USER@]CONTAINER`, `exec:COMMAND`.
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
  const { codec, connectTimeoutMs = DEFAULT_CONNECT_TIMEOUT_MS, tlsCa } = options;
  let target: ServerTarget;
  try {
    target = parseConnectUrl(options.url);
  } catch (error) {
    return () => Promise.reject(error);
  }
  const { url } = target;
  const common = { url, connectTimeoutMs, codec, ca: tlsCa };
  const authorize = (token?: string) => (token === undefined ? undefined : { authorization: `Bearer ${token}` });
  const current = (name: "authToken" | "tlsCert" | "tlsKey") => {
    const { [name]: source } = options;
    const value = typeof source === "function" ? source() : source;
    if (value !== undefined) checkArgument("connect", name, value, secretText);
    return value;
  };
  if (target.type === "socket") {
    return async (events, signal) => {
      const token = current("authToken");
      if (token !== undefined && !options.insecurePlainToken) rejectPlaintextToken(url);
      const identity = { cert: current("tlsCert"), key: current("tlsKey") };
      const headers = authorize(token);
      return new JsonRpcChannel(await connectWebSocket({ ...common, ...identity, headers, signal }), events);
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
      const headers = authorize(current("authToken"));
      const openSocket = (received: Buffer, maxMessageBytes: number) =>
        stream.toFrameSocket(codec, received, maxMessageBytes);
      return new JsonRpcChannel(await connectWebSocket({ ...common, headers, signal, stream, openSocket }), events);
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
  static async connectWebSocket(options: WebSocketClientOptions): Promise<UniversalClient> {
    checkOptions("connectWebSocket", options, webSocketOptions);
    return NodeExecServerClient.#connectSocket(options);
  }

  /**
   * Connects through a Unix socket.
   *
   * @example
   * await using client = await ExecServerClient.connectUnix({ path: "/run/procwire.sock" });
   */
  static async connectUnix(options: UnixClientOptions): Promise<UniversalClient> {
    checkOptions("connectUnix", options, unixOptions);
    const { path, ...rest } = options;
    return NodeExecServerClient.#connectSocket({ ...rest, url: `unix://${path}` });
  }

  static #connectSocket(options: WebSocketClientOptions): Promise<UniversalClient> {
    const transport = { connect: channelOpener(options), canReconnect: true };
    return NodeExecServerClient.withTransport(transport, options, "connectWebSocket", webSocketOptions);
  }

  /**
   * Connects through a pair of line-based streams, such as stdout and stdin of a server process. They cannot be opened
   * again, so losing them is final.
   *
   * @example
   * const client = await ExecServerClient.connectStdio(child.stdout, child.stdin);
   */
  static async connectStdio(
    input: Readable,
    output: Writable,
    options: ExecServerClientOptions & { codec?: ByteCodec | undefined } = {},
  ): Promise<UniversalClient> {
    checkArgument("connectStdio", "input", input, readableKind);
    checkArgument("connectStdio", "output", output, writableKind);
    const connect: OpenChannel = async (events) => {
      const { codec } = options;
      return new JsonRpcChannel(new LineConnection(input, output, { label: "exec-server stdio", codec }), events);
    };
    const transport = { connect, canReconnect: false };
    return NodeExecServerClient.withTransport(transport, options, "connectStdio", stdioOptions);
  }
}
