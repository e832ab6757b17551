import { callError, codeOf, withCaller } from "../../exec/call-error.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";

/**
 * Makes a connection whose failure is an ExecServerError: the system's code where there is one (`ECONNREFUSED`, `ENOENT`
 * for a missing socket), `REFUSED` where an HTTP answer was no, `PIPE` or `MISSING` where a program such as ssh opened no way, else `CONNECT`. An abort rejects with its reason.
 */
export async function connecting<T>(open: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  const caller = new Error("called from here");
  try {
    return await open();
  } catch (error) {
    signal?.throwIfAborted();
    if (codeOf(error) !== null) throw callError(error, { method: "initialize" }, caller);
    const message = error instanceof Error && error.message !== "" ? error.message : String(error);
    const details = { method: "initialize" };
    throw withCaller(new ExecServerError(message, reasonOf(error), details, { cause: error }), caller);
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
