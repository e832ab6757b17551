import { type Inputs, useEffect, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";

/**
 * Calls `poll` immediately and then `intervalMs` after each call completes, while the page is visible. The signal aborts when
 * the component unmounts; `poll` stores results and errors itself.
 */
export function usePolling(poll: (signal: AbortSignal) => Promise<void>, intervalMs: number, inputs: Inputs): void {
  useEffect(() => {
    const unmounted = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isPolling = false;
    const next = async () => {
      // A page that becomes visible during a poll must not start a second series of polls.
      if (isPolling) return;
      isPolling = true;
      if (!document.hidden) await poll(unmounted.signal);
      isPolling = false;
      if (!unmounted.signal.aborted) timer = setTimeout(() => void next(), intervalMs);
    };
    // Refresh at once when the page becomes visible again.
    const onVisibilityChange = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      void next();
    };
    void next();
    document.addEventListener("visibilitychange", onVisibilityChange);
    return () => {
      unmounted.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibilityChange);
    };
  }, inputs);
}

/** A value that is polled. */
export interface Polled<T> {
  /** Null until the first load completes. A failed load keeps the last value. */
  value: T | null;
  /** Why the last load failed, or null. */
  problem: string | null;
}

/** Polls a value with `load`, as `usePolling` does. */
export function usePolled<T>(load: (signal: AbortSignal) => Promise<T>, intervalMs: number, inputs: Inputs): Polled<T> {
  const [polled, setPolled] = useState<Polled<T>>({ value: null, problem: null });
  usePolling(
    async (signal) => {
      try {
        const value = await load(signal);
        if (!signal.aborted) setPolled({ value, problem: null });
      } catch (error) {
        if (!signal.aborted) setPolled(({ value }) => ({ value, problem: userMessage(error) }));
      }
    },
    intervalMs,
    inputs,
  );
  return polled;
}
