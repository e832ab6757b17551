import { getErrorCode } from "../../base/error-code.ts";
import { errorCode, toCallError, withCallerStack } from "../../exec/call-error.ts";
import { ExecServerError, type ExecServerErrorCode, isSystemErrorCode } from "../../protocol/exec-server-error.ts";

/**
 * Connects, and converts failures to an ExecServerError. Its code is the system's if there is one (`ECONNREFUSED`,
 * `ENOENT` for a missing socket), `REFUSED` for an HTTP error response, `PIPE` or `MISSING` if a command such as ssh
 * failed, otherwise `CONNECT`. An abort rejects with the signal's reason.
 */
export async function withConnectErrors<T>(open: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  const caller = new Error("called from here");
  try {
    return await open();
  } catch (error) {
    signal?.throwIfAborted();
    if (errorCode(error) !== null) throw toCallError(error, { method: "initialize" }, caller);
    const message = error instanceof Error && error.message !== "" ? error.message : String(error);
    const details = { method: "initialize" };
    throw withCallerStack(new ExecServerError(message, findCode(error), details, { cause: error }), caller);
  }
}

function findCode(error: unknown): ExecServerErrorCode {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = getErrorCode(cause);
    if (code !== null && isSystemErrorCode(code)) return code;
    if ("status" in cause) return "REFUSED";
    if (code === "PIPE" || code === "MISSING") return code;
  }
  return "CONNECT";
}
