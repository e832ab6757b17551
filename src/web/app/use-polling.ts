import { type Inputs, useEffect } from "preact/hooks";

/**
 * Calls `look` immediately and then `everyMs` after each call completes, while the page is visible. The signal aborts when the
 * component unmounts; `look` stores results and errors itself.
 */
export function usePolling(
  look: (signal: AbortSignal) => Promise<void>,
  everyMs: number,
  inputs: Inputs,
): void {
  useEffect(() => {
    const leaving = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const next = async () => {
      if (!document.hidden) await look(leaving.signal);
      if (!leaving.signal.aborted) timer = setTimeout(() => void next(), everyMs);
    };
    // Refresh at once when the page becomes visible again.
    const shown = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      void next();
    };
    void next();
    document.addEventListener("visibilitychange", shown);
    return () => {
      leaving.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, inputs);
}
