/** Calls `listener` once when the signal aborts, at once when it already has. Returns how to stop listening. */
export function whenAborted(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener();
    return () => undefined;
  }
  signal.addEventListener("abort", listener, { once: true });
  return () => signal.removeEventListener("abort", listener);
}

/**
 * Waits for `promise` until the signal aborts, then rejects with its reason. The promise itself goes on; what it gives
 * after that is handed to `tooLate`.
 */
export async function abortable<T>(
  promise: Promise<T>,
  signal: AbortSignal | undefined,
  tooLate?: (value: T) => PromiseLike<unknown>,
): Promise<T> {
  if (!signal) return promise;
  const aborted = Promise.withResolvers<never>();
  const stop = whenAborted(signal, () => {
    aborted.reject(signal.reason);
    // Nobody waits for it any more, whether it succeeds or not.
    if (tooLate) promise.then(tooLate).catch(() => undefined);
  });
  try {
    return await Promise.race([aborted.promise, promise]);
  } finally {
    stop();
  }
}
