import type { MethodName, ParamsOf, ResultOf } from "../protocol/methods.ts";

/** What a handler may use beside its params. */
export interface CallContext {
  /** Runs once the answer is on its way, and before anything that comes later. */
  afterAnswer(task: () => void): void;
  /** Aborted when the connection is gone: whoever waits on its behalf stops. */
  readonly gone: AbortSignal;
}

/** One function a method, under the method's own name. */
export type Handler<M extends MethodName> = (
  params: ParamsOf<M>,
  context: CallContext,
) => Promise<ResultOf<M>>;
export type Handlers<M extends MethodName = MethodName> = { readonly [K in M]: Handler<K> };
