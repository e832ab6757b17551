import type { OpenedFile } from "../../files/file-system.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";

/** Services that a handler can use in addition to its params. */
export interface CallContext {
  /** Runs a task after the response is queued and before any later message. */
  afterResponse(task: () => void): void;
  /** Waits until there is memory for a response of this size. The reservation ends when the response is sent. */
  reserveResponseBytes(bytes: number): Promise<void>;
  /**
   * Waits until this connection has memory for a response of this size. Charges the budget, but does not wait for other
   * connections, whose clients may not read. The charge ends when the response is sent.
   */
  chargeResponseBytes(bytes: number): Promise<void>;
  /**
   * Sends the bytes of a file as base64 in place of the result of `fs/readFile` if the handler succeeds, and closes the file.
   * Absent for a client in this process, which gets whole results.
   */
  readonly streamFile?: ((file: OpenedFile) => void) | undefined;
  /** Aborts when the connection closes, so that a waiting handler stops. */
  readonly disconnected: AbortSignal;
}

/** The part of the context that the connection provides. */
export type Caller = Pick<CallContext, "afterResponse" | "streamFile">;

/** Handles one method. */
export type Handler<M extends MethodName> = (params: ParamsOf<M>, context: CallContext) => Promise<ResultOf<M>>;
export type Handlers<M extends MethodName = MethodName> = { readonly [K in M]: Handler<K> };
