import { sleep, systemClock } from "../../async/clock.ts";
import type { JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { JobListener } from "./job-listener.ts";
import { ProgressTicker } from "./progress-ticker.ts";

export type WatchResult =
  /** The job ended, before or during the watch. */
  | { type: "ended"; job: JobRecord }
  /** The status is running, but no process works on the job. */
  | { type: "jobInterrupted" }
  | { type: "aborted" };

/** Poll interval: the maximum delay until the watch notices the end of a job. */
const POLL_INTERVAL_MS = 500;

/** Follows a job that another process runs, without changing it. */
export async function watchJob(ledger: JobLedger, listener: JobListener, signal: AbortSignal): Promise<WatchResult> {
  const job = await ledger.job();
  listener.started?.(job, await ledger.counts(), true);
  const ticker = new ProgressTicker({
    ledger,
    limiter: null,
    health: null,
    clock: systemClock,
    onProgress: (progress) => listener.progress?.(progress),
  });
  ticker.start();
  try {
    for (;;) {
      const current = await ledger.job();
      if (current.status !== "running") return { type: "ended", job: current };
      if ((await ledger.isRunHeld()) === false) return { type: "jobInterrupted" };
      await sleep(systemClock, POLL_INTERVAL_MS, signal);
    }
  } catch (error) {
    if (signal.aborted) return { type: "aborted" };
    throw error;
  } finally {
    await ticker.stop();
  }
}
