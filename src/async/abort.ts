/** Calls `listener` once when the signal aborts, or immediately if it is aborted. Returns a function that unsubscribes. */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener();
    return () => undefined;
  }
  signal.addEventListener("abort", listener, { once: true });
  return () => signal.removeEventListener("abort", listener);
}

/**
 * Waits for `promise`, or rejects with the signal's reason when the signal aborts. The promise itself continues; `onLate`
 * receives a value that arrives after the abort.
 */
export async function abortable<T>(
  promise: Promise<T>,
  signal: AbortSignal | undefined,
  onLate?: (value: T) => PromiseLike<unknown>,
): Promise<T> {
  if (!signal) return promise;
  const aborted = Promise.withResolvers<never>();
  const unsubscribe = onAbort(signal, () => {
    aborted.reject(signal.reason);
    // No caller waits for the late result or its failure.
    if (onLate) promise.then(onLate).catch(() => undefined);
  });
  try {
    return await Promise.race([aborted.promise, promise]);
  } finally {
    unsubscribe();
  }
}
