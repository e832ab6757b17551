import { type Inputs, useEffect } from "preact/hooks";

/**
 * Polls: calls `look` at once, and again a while after each call has ended, as long as the page is visible. Its signal
 * aborts when the result is no longer wanted; `look` itself shows what it found, and what went wrong.
 */
export function useLooks(
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
    // A person who comes back to the page wants to see the current state.
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
