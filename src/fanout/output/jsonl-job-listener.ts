import { type LineSink, LineWriter } from "../../agent/output/line-writer.ts";
import { type Clock, systemClock } from "../../async/clock.ts";
import type { ItemRecord, JobCounts, JobRecord } from "../job.ts";
import { endedEvent, type JobEvent, progressEvent, retryingEvent, rowEventLine, startedEvent } from "./job-events.ts";
import type { JobEnd, JobListener, RowRetry } from "./job-listener.ts";
import type { JobProgress } from "./job-progress.ts";

/** Progress interval, sufficient for programs. */
const PROGRESS_INTERVAL_MS = 1_000;

/** Output for programs: one JSON object per line on stdout. */
export class JsonlJobListener implements JobListener {
  #lines: LineWriter;
  #clock: Clock;
  #jobId = "";
  #reportedAtMs = Number.NEGATIVE_INFINITY;
  #lastProgress: JobProgress | null = null;

  constructor(stdout: LineSink, clock: Clock = systemClock) {
    this.#lines = new LineWriter(stdout);
    this.#clock = clock;
  }

  started(job: JobRecord, counts: JobCounts, resumed: boolean): void {
    this.#jobId = job.id;
    this.#write(startedEvent(job, counts, resumed));
  }

  warning(message: string): void {
    this.#write({ type: "job.warning", message });
  }

  reused(rows: number): void {
    this.#write({ type: "job.reused", reused_items: rows });
  }

  progress(progress: JobProgress): void {
    this.#lastProgress = progress;
    if (this.#clock.monotonic() - this.#reportedAtMs < PROGRESS_INTERVAL_MS) return;
    this.#writeProgress();
  }

  row(item: ItemRecord): void {
    this.#lines.line(rowEventLine(this.#jobId, item));
  }

  retrying(retry: RowRetry): void {
    this.#write(retryingEvent(this.#jobId, retry));
  }

  ended(end: JobEnd): void {
    this.#writeProgress();
    this.#write(endedEvent(end));
  }

  #writeProgress(): void {
    if (!this.#lastProgress) return;
    this.#reportedAtMs = this.#clock.monotonic();
    this.#write(progressEvent(this.#lastProgress));
    this.#lastProgress = null;
  }

  #write(event: JobEvent): void {
    this.#lines.line(JSON.stringify(event));
  }
}
