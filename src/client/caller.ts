import type { Trace } from "../protocol/envelope.ts";
import type { MethodName, ParamsOf, ResultOf, ServerNotification } from "../protocol/methods.ts";

/** How a caller ended. */
export interface CallerEnd {
  reason: string | null;
  /** False when trying again would end the same way: the peer spoke something that is not this protocol. */
  recoverable: boolean;
}

export interface CallerEvents {
  /** The span that a call belongs to, sent with it; absent: none is. */
  trace?: (() => Trace | undefined) | undefined;
  notified(notification: ServerNotification): void;
  /** The last event, told once, after every pending call has been rejected. */
  closed(end: CallerEnd): void;
}

/** Typed calls to one server over one connection. The client above does not care what is below. */
export interface Caller {
  /** Rejects with a RequestError as the server answered, or with a DisconnectedError when the connection is lost. */
  call<M extends MethodName>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>>;
  initialized(): void;
  /** Only where the server granted `outputAck`. */
  ack(processId: string, seq: number): void;
  /** So many bytes of a forwarded stream have been dealt with. */
  forwardAck(streamId: string, bytes: number): void;
  /** Resolves at a sign of life from below the protocol; null where the transport has none. */
  ping(): Promise<void> | null;
  /** Stops and resumes taking what the server sends, answers too. */
  pause(): void;
  resume(): void;
  /** Set once the connection is over. */
  readonly end: CallerEnd | null;
  /** Idempotent. */
  close(reason?: string): void;
}

/** Opens a connection and the caller on it. Rejects when no server answers, or the signal is aborted. */
export type Connect = (events: CallerEvents, signal: AbortSignal) => Promise<Caller>;
