import type { LineSink } from "../../agent/output/line-writer.ts";
import { StatusLine } from "../../agent/output/status-line.ts";
import { type Clock, systemClock } from "../../async/clock.ts";
import { formatAge } from "../../base/text/format-age.ts";
import { costInUsd } from "../cost/price-table.ts";
import type { ItemRecord, JobCounts, JobRecord } from "../job.ts";
import type { JobEnd, JobListener } from "./job-listener.ts";
import { formatProgress, formatUsage, type JobProgress } from "./job-progress.ts";
import type { JobSummary } from "./job-summary.ts";

/** Interval of progress lines if the output is not a terminal. */
const LINE_INTERVAL_MS = 5_000;
/** Failed rows shown during the run; errors.csv contains all of them. */
const SHOWN_FAILURES = 10;

/**
 * Output for users on stderr: a progress bar on a terminal, otherwise a line every few seconds; the next steps at the
 * end.
 */
export class TerminalJobListener implements JobListener {
  #status: StatusLine;
  #clock: Clock;
  #beganAtMs: number;
  #reportedAtMs: number;
  #failures = 0;

  constructor(stderr: LineSink, clock: Clock = systemClock) {
    this.#status = new StatusLine(stderr);
    this.#clock = clock;
    this.#beganAtMs = this.#clock.monotonic();
    this.#reportedAtMs = this.#beganAtMs;
  }

  started(job: JobRecord, counts: JobCounts, resumed: boolean): void {
    const id = job.id.slice(0, 8);
    const done = counts.completed + counts.failed;
    this.#status.line(
      resumed
        ? `job ${id} continues: ${done} of ${counts.total} rows are finished`
        : `job ${id}: ${counts.total} rows, model ${job.task.model}`,
    );
  }

  warning(message: string): void {
    this.#status.line(`warning: ${message}`);
  }

  reused(rows: number): void {
    this.#status.line(`${rows} rows were answered by earlier jobs (--no-reuse asks them again)`);
  }

  progress(progress: JobProgress): void {
    if (this.#status.inPlace) {
      this.#status.status(formatProgress(progress, this.#status.columns));
      return;
    }
    if (this.#clock.monotonic() - this.#reportedAtMs < LINE_INTERVAL_MS) return;
    this.#reportedAtMs = this.#clock.monotonic();
    this.#status.line(formatProgress(progress, null));
  }

  row(item: ItemRecord): void {
    if (item.status !== "failed") return;
    this.#failures++;
    if (this.#failures <= SHOWN_FAILURES) {
      this.#status.line(`${item.itemId} failed (${item.errorClass}): ${item.error}`);
    } else if (this.#failures === SHOWN_FAILURES + 1) {
      this.#status.line("more rows failed; errors.csv lists all of them");
    }
  }

  ended(end: JobEnd): void {
    this.#status.clear();
    const seconds = Math.round((this.#clock.monotonic() - this.#beganAtMs) / 1000);
    for (const line of endLines(end, seconds)) this.#status.line(line);
  }
}

function endLines({ summary, end, errorsPath }: JobEnd, seconds: number): string[] {
  const { job, counts, price } = summary;
  const id = job.id.slice(0, 8);
  const used = formatUsage(counts.usage, price && costInUsd(price, counts.usage));
  const lines = [
    `${job.status}: ${counts.completed} of ${counts.total} rows completed${failureText(summary)}; ${used}, ${formatAge(seconds * 1000)}`,
    `results: ${job.outputPath}`,
  ];
  if (errorsPath !== null) {
    lines.push(`failures: ${errorsPath}`);
    lines.push(`to retry the failed rows: procwire jobs retry ${id}`);
  }
  if (job.stop && job.stop.cause !== "interrupted") lines.push(`reason: ${job.stop.reason}`);
  const left = job.totalRows - counts.completed - counts.failed;
  if (left > 0 || end.type === "stopped") {
    lines.push(`to continue with the remaining ${left} rows: run the same command again`);
  }
  return lines;
}

function failureText(summary: JobSummary): string {
  if (summary.counts.failed === 0) return "";
  const classes = summary.failuresByClass.map(([errorClass, count]) => `${count} ${errorClass}`).join(", ");
  return `, ${summary.counts.failed} failed (${classes})`;
}
