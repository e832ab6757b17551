import type { MethodName, ParamsOf, ResultOf } from "../protocol/methods.ts";

/** What a handler may use beside its params. */
export interface CallContext {
  /** Runs once the answer is on its way, and before anything that comes later. */
  afterAnswer(task: () => void): void;
  /**
   * Waits until there is memory for an answer of this size, among those of its connection and of the whole server. It is
   * given back once the answer was sent.
   */
  admit(bytes: number): Promise<void>;
  /** Aborted when the connection is gone: a handler that waits on its behalf stops. */
  readonly gone: AbortSignal;
}

/** One function a method, under the method's own name. */
export type Handler<M extends MethodName> = (
  params: ParamsOf<M>,
  context: CallContext,
) => Promise<ResultOf<M>>;
export type Handlers<M extends MethodName = MethodName> = { readonly [K in M]: Handler<K> };
