import type { ExecProcess } from "./exec-process.ts";

/** Waits for a start until the signal aborts, then rejects with its reason. A process that starts later is ended at once. */
export async function startUntil<P extends ExecProcess>(
  starting: Promise<P>,
  signal: AbortSignal | undefined,
): Promise<P> {
  if (!signal) return starting;
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => {
    // Whether it starts or not, nobody waits for it any more.
    starting.then((process) => process[Symbol.asyncDispose]()).catch(() => undefined);
    aborted.reject(signal.reason);
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([starting, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
