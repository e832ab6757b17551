import { errorCode, toCallError, withCallerStack } from "../../exec/call-error.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";

/**
 * Connects, and converts failures to an ExecServerError. Its code is the system's if there is one (`ECONNREFUSED`,
 * `ENOENT` for a missing socket), `REFUSED` for an HTTP error response, `PIPE` or `MISSING` if a command such as ssh
 * failed, otherwise `CONNECT`. An abort rejects with the signal's reason.
 */
export async function withConnectErrors<T>(
  open: () => Promise<T>,
  signal: AbortSignal | undefined,
): Promise<T> {
  const caller = new Error("called from here");
  try {
    return await open();
  } catch (error) {
    signal?.throwIfAborted();
    if (errorCode(error) !== null) throw toCallError(error, { method: "initialize" }, caller);
    const message = error instanceof Error && error.message !== "" ? error.message : String(error);
    const details = { method: "initialize" };
    throw withCallerStack(new ExecServerError(message, reasonOf(error), details, { cause: error }), caller);
  }
}

function reasonOf(error: unknown): string {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if ("code" in cause && typeof cause.code === "string" && /^(E[A-Z0-9]+|EAI_[A-Z]+)$/.test(cause.code))
      return cause.code;
    if ("status" in cause) return "REFUSED";
    if (cause.name === "PipeError" && "code" in cause) return String(cause.code);
  }
  return "CONNECT";
}
