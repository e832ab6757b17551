import type { Clock, Timer } from "../async/clock.ts";

/** Between two words to the watchdog; it waits ten times as long (`native/programs/watchdog.c`). */
const TELL_EVERY_MS = 1_000;
/**
 * What an end may take beyond its grace: the sweep, the last orphans, connections that close. One that takes longer is
 * stuck, though its event loop is not, and is left to the watchdog.
 */
const BEYOND_GRACE_MS = 10_000;

/** The program above a server that ends it when it is stuck. */
export interface Watchdog {
  /** An end is under way that takes this long and a little more. The returned function is called when it is over. */
  ending(graceMs: number): () => void;
}

/** What a server program without a watchdog cannot promise; null when there is one. Asked before `findWatchdog`. */
export function missingWatchdog(env: NodeJS.ProcessEnv = process.env): string | null {
  if (isParent(Number(env.PROCWIRE_WATCHDOG))) return null;
  return "no watchdog: what this server started may outlive it when it is killed; `procwire serve` brings one where there is a native addon";
}

/** Asks once: what the watchdog has left in the environment is not for the programs that are started here. */
export function findWatchdog(clock: Clock, env: NodeJS.ProcessEnv = process.env): Watchdog {
  const pid = Number(env.PROCWIRE_WATCHDOG);
  delete env.PROCWIRE_WATCHDOG;
  return {
    ending(graceMs) {
      let timer: Timer | null = null;
      const until = clock.monotonic() + graceMs + BEYOND_GRACE_MS;
      const tell = () => {
        // A parent that is not our watchdog would be killed by the signal.
        if (!isParent(pid) || clock.monotonic() > until) return;
        try {
          process.kill(pid, "SIGUSR1");
        } catch {
          // It died in this moment; SIGTERM comes from that.
          return;
        }
        timer = clock.after(TELL_EVERY_MS, tell, { keepAlive: false });
      };
      tell();
      return () => timer?.cancel();
    },
  };
}

const isParent = (pid: number) => process.ppid === pid;
