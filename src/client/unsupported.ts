import { ErrorCode, RequestError } from "../protocol/errors.ts";
import type { MethodName, ParamsOf, ResultOf } from "../protocol/methods.ts";
import type { Link, LinkCallOptions } from "./session/reconnecting-session.ts";

/** The code other servers of this family answer an unknown method with. */
const METHOD_NOT_FOUND = -32601;

/** The error for a method that this server does not have. */
export function notSupported(what: string, cause?: unknown): RequestError {
  return new RequestError(METHOD_NOT_FOUND, `${what} is not supported by this server`, { cause });
}

/** Says clearly what `method` met: a server that does not know it, or the error as it came. */
export function explainUnknownMethod(method: string, error: unknown): unknown {
  if (!(error instanceof RequestError)) return error;
  const isUnknown =
    error.code === METHOD_NOT_FOUND ||
    (error.code === ErrorCode.invalidRequest && error.message.startsWith("unknown method:"));
  return isUnknown ? notSupported(method, error) : error;
}

/** A call that says so clearly when the server does not know the method. */
export async function explainedCall<M extends MethodName>(
  link: Link,
  method: M,
  params: ParamsOf<M>,
  options?: LinkCallOptions<M>,
): Promise<ResultOf<M>> {
  try {
    return await link.call(method, params, options);
  } catch (error) {
    throw explainUnknownMethod(method, error);
  }
}
