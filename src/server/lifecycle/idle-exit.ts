import type { Clock, Timer } from "../../async/clock.ts";
import type { ExecServer } from "../exec-server.ts";

/** Counters that show whether a server is in use. Its sessions include detached ones, which a client can still resume. */
type ActivityCounters = Pick<ExecServer, "connectionCount" | "sessionCount" | "liveProcessCount" | "acceptedCount">;

/** Number of checks per idle period. */
const CHECKS_PER_PERIOD = 10;

/** Resolves `over` when the server has been idle for `idleMs` without interruption. */
export function watchIdle(
  server: ActivityCounters,
  idleMs: number,
  clock: Clock,
): { over: Promise<void>; stop(): void } {
  const over = Promise.withResolvers<void>();
  let idleSince = clock.monotonic();
  let accepted = server.acceptedCount;
  const check = () => {
    const now = clock.monotonic();
    const isUsed = server.connectionCount > 0 || server.sessionCount > 0 || server.liveProcessCount > 0;
    // A connection may have opened and closed between two checks.
    if (isUsed || server.acceptedCount !== accepted) idleSince = now;
    accepted = server.acceptedCount;
    if (now - idleSince >= idleMs) over.resolve();
    else timer = checkLater();
  };
  const checkLater = () => clock.after(Math.max(1, idleMs / CHECKS_PER_PERIOD), check, { keepAlive: false });
  let timer: Timer = checkLater();
  return { over: over.promise, stop: () => timer.cancel() };
}
