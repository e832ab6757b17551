import type { Trace } from "../../protocol/envelope.ts";
import type {
  HandleServerRequest,
  MethodName,
  ParamsOf,
  ResultOf,
  ServerNotification,
} from "../../protocol/methods.ts";

/** Why a channel closed. */
export interface ChannelClose {
  reason: string | null;
  /** False if reconnecting would fail the same way, because the peer violates the protocol. */
  recoverable: boolean;
}

export interface RpcChannelEvents {
  /** Returns the span that is sent with a call; absent: no span is sent. */
  trace?: (() => Trace | undefined) | undefined;
  onNotification(notification: ServerNotification): void;
  /** Absent: requests of the server are rejected as unknown. */
  readonly onRequest?: HandleServerRequest | undefined;
  /** The last event, emitted once, after every pending call was rejected. */
  onClosed(end: ChannelClose): void;
}

/** Typed calls to one server over one connection, for any transport. */
export interface RpcChannel {
  /** Rejects with the server's RequestError, or with a DisconnectedError if the connection is lost. */
  call<M extends MethodName>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>>;
  /** Sends file blocks as bytes from now on. Absent if the transport has no binary messages. */
  readonly enableBinaryBlocks?: (() => void) | undefined;
  initialized(): void;
  /** Acknowledges output. Requires that the server granted `outputAck`. */
  ack(processId: string, seq: number): void;
  /** Acknowledges consumed bytes of a forwarded stream. */
  forwardAck(streamId: string, bytes: number): void;
  /** Sends a ping of the transport and resolves with its reply; null if the transport has none. */
  ping(): Promise<void> | null;
  /** Stops and resumes reading from the server, including responses. */
  pause(): void;
  resume(): void;
  /** Why the channel closed; null while it is open. */
  readonly closeInfo: ChannelClose | null;
  /** Idempotent. */
  close(reason?: string): void;
}

/** Opens a connection and its channel. Rejects if no server responds or the signal aborts. */
export type OpenChannel = (events: RpcChannelEvents, signal: AbortSignal) => Promise<RpcChannel>;
