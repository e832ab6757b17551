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
import { RpcCaller } from "../rpc-caller.ts";

export interface SocketClientOptions extends ExecServerClientOptions {
  /** How long the connection itself may take. Default 10 s. */
  connectTimeoutMs?: number;
  /** Sent as `Authorization: Bearer …`. */
  authToken?: string | undefined;
  /** Faster byte loops than Node's own, where they are at hand. */
  codec?: ByteCodec | undefined;
}

export interface WebSocketClientOptions extends SocketClientOptions {
  /** `ws://HOST:PORT`, `wss://HOST:PORT`, or `unix:///path/of/socket`. */
  url: string;
}

export interface UnixClientOptions extends SocketClientOptions {
  /** The path of the socket a server listens on. */
  path: string;
}

/** The client with every transport that Node has. */
export class ExecServerClient extends UniversalClient {
  /**
   * Connects over a WebSocket.
   *
   * @example
   * await using client = await ExecServerClient.connectWebSocket({
   *   url: "ws://127.0.0.1:7070",
   *   authToken: process.env.PROCWIRE_TOKEN,
   * });
   */
  static connectWebSocket(options: WebSocketClientOptions): Promise<UniversalClient> {
    const { url, authToken, codec, connectTimeoutMs = DEFAULT_CONNECT_TIMEOUT_MS } = options;
    const connect: Connect = async (events, signal) => {
      const connection = await connectWebSocket({
        url,
        connectTimeoutMs,
        signal,
        headers: authToken === undefined ? undefined : { authorization: `Bearer ${authToken}` },
        codec,
      });
      return new RpcCaller(connection, events);
    };
    return ExecServerClient.over({ connect, canReconnect: true }, options);
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
