import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";

/** Services that a handler can use in addition to its params. */
export interface CallContext {
  /** Runs a task after the response is queued and before any later message. */
  afterResponse(task: () => void): void;
  /** Waits until there is memory for a response of this size. The reservation ends when the response is sent. */
  reserveResponseBytes(bytes: number): Promise<void>;
  /** Aborts when the connection closes, so that a waiting handler stops. */
  readonly disconnected: AbortSignal;
}

/** Handles one method. */
export type Handler<M extends MethodName> = (params: ParamsOf<M>, context: CallContext) => Promise<ResultOf<M>>;
export type Handlers<M extends MethodName = MethodName> = { readonly [K in M]: Handler<K> };
