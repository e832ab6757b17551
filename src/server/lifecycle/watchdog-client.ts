import type { Clock, Timer } from "../../async/clock.ts";
import { MISSING_WATCHDOG } from "../../protocol/degraded-features.ts";

/** Interval of reports to the watchdog, which waits ten times as long (`native/programs/watchdog.c`). */
const REPORT_INTERVAL_MS = 1_000;
/**
 * Time that a shutdown may take beyond its grace period: sweep, last orphans, closing connections. A shutdown that
 * takes longer hangs, even if the event loop still runs, and the watchdog ends it.
 */
const SHUTDOWN_MARGIN_MS = 10_000;

/** Returns a warning if this server has no watchdog. Call it before `connectWatchdog`. */
export function watchdogWarnings(): string[] {
  if (isParent(Number(process.env.PROCWIRE_WATCHDOG))) return [];
  return [
    `${MISSING_WATCHDOG}: processes may outlive this server if it is killed; run \`procwire serve\` with the native addon to get one`,
  ];
}

/**
 * Reads the watchdog's pid from the environment and removes it there, so that child processes do not inherit it. The
 * watchdog is the parent program that kills a server that hangs in shutdown. Returns a function that reports the begin
 * of a shutdown of `graceMs` plus a margin, and returns the function that reports its end.
 */
export function connectWatchdog(clock: Clock): (graceMs: number) => () => void {
  const pid = Number(process.env.PROCWIRE_WATCHDOG);
  delete process.env.PROCWIRE_WATCHDOG;
  return (graceMs) => {
    let timer: Timer | null = null;
    const until = clock.monotonic() + graceMs + SHUTDOWN_MARGIN_MS;
    const report = () => {
      // The signal would kill a parent that is not our watchdog.
      if (!isParent(pid) || clock.monotonic() > until) return;
      try {
        process.kill(pid, "SIGUSR1");
      } catch {
        // The watchdog just died; its death sends this server SIGTERM.
        return;
      }
      timer = clock.after(REPORT_INTERVAL_MS, report, { keepAlive: false });
    };
    report();
    return () => timer?.cancel();
  };
}

const isParent = (pid: number) => process.ppid === pid;
