import { type Inputs, useEffect } from "preact/hooks";

/**
 * Looks at once, and again a while after each look has ended, as long as the page is visible. `look` is told by its signal
 * that nobody waits for it any more; it tells what it found, and what went wrong, by itself.
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
    // Who comes back to the page wants to see it as it is now.
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
