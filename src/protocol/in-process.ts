import type { HandleServerRequest, MethodName, ParamsOf, ResultOf, ServerNotification } from "./methods.ts";

/**
 * The protocol as typed calls and notifications, without JSON. The server implements this interface and the client uses
 * it, so that neither imports the other.
 */
export interface InProcessServer {
  connectInProcess(client: InProcessClient): InProcessConnection;
}

export interface InProcessClient {
  onNotification(notification: ServerNotification): void;
  /** Absent: requests of the server are rejected as unknown. */
  readonly onRequest?: HandleServerRequest | undefined;
  /** Called once, as the last event, when the server closes the connection. */
  onDisconnect(reason: string | null): void;
}

export interface InProcessConnection {
  /** Rejects with the RequestError that a JSON-RPC client would receive. */
  call<M extends MethodName>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>>;
  initialized(): void;
  ack(params: { processId: string; seq: number }): void;
  forwardAck(params: { streamId: string; bytes: number }): void;
  close(): void;
}
