import { type Clock, sleep, systemClock } from "../../async/clock.ts";
import type { JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { JobListener } from "./job-listener.ts";
import { ProgressTicker } from "./progress-ticker.ts";

export type WatchEnd =
  /** It ended while it was watched, or had ended before. */
  | { type: "ended"; job: JobRecord }
  /** Its status is running, but no process works on it. */
  | { type: "abandoned"; job: JobRecord }
  | { type: "interrupted" };

/** Poll interval, and so how soon an end is noticed. */
const LOOK_EVERY_MS = 500;

/** Follows a job that another process runs; changes nothing. */
export async function watchJob(
  ledger: JobLedger,
  listener: JobListener,
  signal: AbortSignal,
  clock: Clock = systemClock,
): Promise<WatchEnd> {
  const job = await ledger.job();
  listener.started?.(job, await ledger.counts(), true);
  const ticker = new ProgressTicker({
    ledger,
    limiter: null,
    health: null,
    clock,
    onProgress: (progress) => listener.progress?.(progress),
  });
  ticker.start();
  try {
    for (;;) {
      const now = await ledger.job();
      if (now.status !== "running") return { type: "ended", job: now };
      if ((await ledger.isBeingRun()) === false) return { type: "abandoned", job: now };
      await sleep(clock, LOOK_EVERY_MS, signal);
    }
  } catch (error) {
    if (signal.aborted) return { type: "interrupted" };
    throw error;
  } finally {
    await ticker.stop();
  }
}
