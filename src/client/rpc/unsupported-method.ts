import { isUnknownMethod } from "../../exec/compat.ts";
import { ErrorCode, RequestError } from "../../protocol/errors.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type { ReconnectingSession, SessionCallOptions } from "../session/reconnecting-session.ts";
import type { ReopeningSession } from "../session/reopening-session.ts";

/** Returns the error for a method that this server does not have. */
export function unsupportedMethodError(what: string, cause?: unknown): RequestError {
  return new RequestError(ErrorCode.methodNotFound, `${what} is not supported by this server`, { cause });
}

/** Replaces an "unknown method" error with a clear one; returns other errors unchanged. */
export function explainUnknownMethod(method: string, error: unknown): unknown {
  if (!(error instanceof RequestError)) return error;
  return isUnknownMethod(error) ? unsupportedMethodError(method, error) : error;
}

/** Calls a method; if the server does not know it, the error names the unsupported method. */
export async function callOrExplain<M extends MethodName>(
  session: ReconnectingSession,
  method: M,
  params: ParamsOf<M>,
  options?: SessionCallOptions<M>,
): Promise<ResultOf<M>> {
  try {
    return await session.call(method, params, options);
  } catch (error) {
    throw explainUnknownMethod(method, error);
  }
}

/** Makes one call, in a new session if the current one is lost. Calls that follow it in an operation use its session. */
export function callInAnySession<M extends MethodName>(
  sessions: Pick<ReopeningSession, "run">,
  method: M,
  params: ParamsOf<M>,
  options: SessionCallOptions<M> = {},
): Promise<ResultOf<M>> {
  const call = (session: ReconnectingSession) =>
    callOrExplain(session, method, params, { ...options, isMovable: true });
  return sessions.run(call, options.signal, options.timeoutMs);
}
