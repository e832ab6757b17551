import { abortable } from "../../async/abort.ts";
import type { ExecProcess } from "../exec-process.ts";

/** Waits for a start. On abort it rejects with the signal's reason; a process that starts later is disposed at once. */
export function abortableStart<P extends ExecProcess>(
  starting: Promise<P>,
  signal: AbortSignal | undefined,
): Promise<P> {
  return abortable(starting, signal, (process) => process[Symbol.asyncDispose]());
}
