import { abortable } from "../../async/abort.ts";
import type { ExecProcess } from "../exec-process.ts";

/** Waits for a start until the signal aborts, then rejects with its reason. A process that starts later is ended at once. */
export function startUntil<P extends ExecProcess>(
  starting: Promise<P>,
  signal: AbortSignal | undefined,
): Promise<P> {
  return abortable(starting, signal, (process) => process[Symbol.asyncDispose]());
}
