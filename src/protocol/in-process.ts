import type { MethodName, ParamsOf, ResultOf, ServerNotification } from "./methods.ts";

/**
 * The protocol without a wire: typed calls and notifications, no JSON. A server offers it, a client takes it, and
 * neither imports the other.
 */
export interface InProcessServer {
  connectInProcess(client: InProcessClient): InProcessConnection;
}

export interface InProcessClient {
  notified(notification: ServerNotification): void;
  /** The server ended the connection; nothing follows. */
  disconnected(reason: string | null): void;
}

export interface InProcessConnection {
  /** Rejects with a RequestError as the wire would answer it. */
  call<M extends MethodName>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>>;
  initialized(): void;
  ack(params: { processId: string; seq: number }): void;
  forwardAck(params: { streamId: string; bytes: number }): void;
  close(): void;
}
