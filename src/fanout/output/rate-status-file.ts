import type { Clock } from "../../async/clock.ts";
import type { OutputDirectory } from "../../files/output-directory.ts";
import type { JobProgress } from "./job-progress.ts";

/** File in the job directory with the rate status of the running process, for other processes. */
export const RATE_STATUS_FILE = "pace.json";

/** Write interval, sufficient for a live view. */
const WRITE_INTERVAL_MS = 1_000;

export interface RateStatus {
  /** Time of the write, in epoch milliseconds. */
  atMs: number;
  concurrency: number;
  maxConcurrency: number;
  pausedMs: number;
  outageSeconds: number | null;
}

/** Writes the rate status during a run. A failed write is ignored. */
export class RateStatusFile {
  readonly #directory: OutputDirectory;
  readonly #clock: Clock;
  #writing: Promise<void> | null = null;
  #nextAtMs = Number.NEGATIVE_INFINITY;

  constructor(directory: OutputDirectory, clock: Clock) {
    this.#directory = directory;
    this.#clock = clock;
  }

  update({ width: concurrency, maxWidth: maxConcurrency, pausedMs, apiOutage }: JobProgress): void {
    if (this.#writing || this.#clock.monotonic() < this.#nextAtMs) return;
    this.#nextAtMs = this.#clock.monotonic() + WRITE_INTERVAL_MS;
    const status: RateStatus = {
      atMs: this.#clock.now(),
      concurrency,
      maxConcurrency,
      pausedMs: Math.round(pausedMs),
      outageSeconds: apiOutage?.seconds ?? null,
    };
    // Replaced atomically, so that a reader never sees a partial file.
    this.#writing = this.#directory
      .replace(RATE_STATUS_FILE, JSON.stringify(status))
      .catch(() => undefined)
      .finally(() => {
        this.#writing = null;
      });
  }

  async close(): Promise<void> {
    await this.#writing;
    try {
      this.#directory.remove(RATE_STATUS_FILE);
    } catch {
      // Readers ignore an old file.
    }
  }
}
