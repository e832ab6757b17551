import type { Clock, Timer } from "../../async/clock.ts";

/** What is asked of a server to know whether anybody uses it. */
export interface Used {
  readonly connectionCount: number;
  /** Also those whose connection was lost and may come back. */
  readonly sessionCount: number;
  readonly liveProcessCount: number;
  readonly acceptedCount: number;
}

/** So often it is looked at in the time it may be idle. */
const LOOKS = 10;

/** Resolves `over` once a server has been idle for this long at a stretch. */
export function watchIdleness(
  server: Used,
  idleMs: number,
  clock: Clock,
): { over: Promise<void>; stop(): void } {
  const over = Promise.withResolvers<void>();
  let timer: Timer;
  let idleSince = clock.monotonic();
  let accepted = server.acceptedCount;
  const look = () => {
    const now = clock.monotonic();
    const isUsed = server.connectionCount > 0 || server.sessionCount > 0 || server.liveProcessCount > 0;
    // Somebody may have come and gone between two looks.
    if (isUsed || server.acceptedCount !== accepted) idleSince = now;
    accepted = server.acceptedCount;
    if (now - idleSince >= idleMs) over.resolve();
    else timer = clock.after(Math.max(1, idleMs / LOOKS), look, { keepAlive: false });
  };
  timer = clock.after(Math.max(1, idleMs / LOOKS), look, { keepAlive: false });
  return { over: over.promise, stop: () => timer.cancel() };
}
