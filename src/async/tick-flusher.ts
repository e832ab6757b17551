/** A sender that collects frames during a tick. */
export interface Flushable {
  flush(): void;
}

let waiting: Flushable[] = [];

/**
 * Flushes `target` at the end of this tick of the event loop. A response and the output that it caused leave in one
 * system call, which is the most expensive part of an echo.
 */
export function flushAfterTick(target: Flushable): void {
  waiting.push(target);
  if (waiting.length > 1) return;
  setImmediate(() => {
    const targets = waiting;
    waiting = [];
    for (const each of targets) each.flush();
  });
}
