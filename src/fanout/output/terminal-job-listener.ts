import type { LineSink } from "../../agent/output/line-writer.ts";
import { StatusLine } from "../../agent/output/status-line.ts";
import { type Clock, systemClock } from "../../async/clock.ts";
import { costOf } from "../cost/price-table.ts";
import { INTERRUPTED, type ItemRecord, type JobCounts, type JobRecord } from "../job.ts";
import type { JobEnd, JobListener } from "./job-listener.ts";
import { durationText, type Progress, progressLine, usedText } from "./job-progress.ts";
import type { JobSummary } from "./job-summary.ts";

/** When the output is not a terminal, one line of progress this often. */
const LINE_EVERY_MS = 5_000;
/** Failed rows shown as they happen; the rest is in errors.csv. */
const SHOWN_FAILURES = 10;

/** For people, on stderr: a bar on a terminal, otherwise a line every few seconds, and at the end what to do next. */
export class HumanJobOutput implements JobListener {
  #status: StatusLine;
  #clock: Clock;
  #beganAtMs: number;
  #toldAtMs: number;
  #failures = 0;

  constructor(stderr: LineSink, options: { clock?: Clock; inPlace?: boolean } = {}) {
    this.#status = new StatusLine(stderr, { inPlace: options.inPlace });
    this.#clock = options.clock ?? systemClock;
    this.#beganAtMs = this.#clock.monotonic();
    this.#toldAtMs = this.#beganAtMs;
  }

  started(job: JobRecord, counts: JobCounts, resumed: boolean): void {
    const id = job.id.slice(0, 8);
    const done = counts.completed + counts.failed;
    this.#status.line(
      resumed
        ? `job ${id} goes on: ${done} of ${counts.total} rows are done`
        : `job ${id}: ${counts.total} rows, model ${job.task.model}`,
    );
  }

  warning(message: string): void {
    this.#status.line(`warning: ${message}`);
  }

  reused(rows: number): void {
    this.#status.line(`${rows} rows were answered by earlier jobs (--no-reuse asks them again)`);
  }

  progress(progress: Progress): void {
    if (this.#status.inPlace) {
      this.#status.status(progressLine(progress, this.#status.columns));
      return;
    }
    if (this.#clock.monotonic() - this.#toldAtMs < LINE_EVERY_MS) return;
    this.#toldAtMs = this.#clock.monotonic();
    this.#status.line(progressLine(progress, PLAIN_COLUMNS));
  }

  row(item: ItemRecord): void {
    if (item.status !== "failed") return;
    this.#failures++;
    if (this.#failures <= SHOWN_FAILURES) {
      this.#status.line(`${item.itemId} failed (${item.errorClass}): ${item.error}`);
    } else if (this.#failures === SHOWN_FAILURES + 1) {
      this.#status.line("more rows failed; errors.csv will have them all");
    }
  }

  ended(end: JobEnd): void {
    this.#status.clear();
    const seconds = Math.round((this.#clock.monotonic() - this.#beganAtMs) / 1000);
    for (const line of endLines(end, seconds)) this.#status.line(line);
  }
}

/** Width of a progress line when the output is not a terminal. */
const PLAIN_COLUMNS = 80;

function endLines({ summary, end, errorsPath }: JobEnd, seconds: number): string[] {
  const { job, counts, price } = summary;
  const id = job.id.slice(0, 8);
  const used = usedText(counts.usage, price && costOf(price, counts.usage));
  const lines = [
    `${job.status}: ${counts.completed} of ${counts.total} rows completed${failureText(summary)}; ${used}, ${durationText(seconds)}`,
    `results: ${job.outputPath}`,
  ];
  if (errorsPath !== null) {
    lines.push(`failures: ${errorsPath}`);
    lines.push(`to ask the failed rows again: procwire jobs retry ${id}`);
  }
  if (job.error !== null && job.error !== INTERRUPTED) lines.push(`reason: ${job.error}`);
  const left = job.totalRows - counts.completed - counts.failed;
  if (left > 0 || end.type === "stopped") {
    lines.push(`to go on with the ${left} rows that are left: run the same command again`);
  }
  return lines;
}

function failureText(summary: JobSummary): string {
  if (summary.counts.failed === 0) return "";
  const classes = summary.failuresByClass.map(([errorClass, count]) => `${count} ${errorClass}`).join(", ");
  return `, ${summary.counts.failed} failed (${classes})`;
}
