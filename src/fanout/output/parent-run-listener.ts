import type { RunContext } from "../../agent/headless-run.ts";
import { subtractUsage, type TokenUsage } from "../../agent/token-usage.ts";
import { type Clock, systemClock } from "../../async/clock.ts";
import type { ItemRecord, JobCounts, JobRecord } from "../job.ts";
import { endedEvent, progressEvent, rowEventLine, startedEvent } from "./job-events.ts";
import type { JobEnd, JobListener } from "./job-listener.ts";
import { formatProgress, type JobProgress } from "./job-progress.ts";

/** Minimum interval of progress events. */
const PROGRESS_INTERVAL_MS = 1_000;
/** Width of the status. The output cuts it to the width of the terminal. */
const STATUS_COLUMNS = 100;

/** Forwards the events of a job to the run of the agent that started it. */
export class ParentRunListener implements JobListener {
  #context: RunContext;
  #clock: Clock;
  #jobId = "";
  #usageBefore: TokenUsage | null = null;
  #reportedAtMs = Number.NEGATIVE_INFINITY;

  constructor(context: RunContext, clock: Clock = systemClock) {
    this.#context = context;
    this.#clock = clock;
  }

  started(job: JobRecord, counts: JobCounts, resumed: boolean): void {
    this.#jobId = job.id;
    this.#usageBefore = counts.usage;
    const how = resumed ? `continues with ${counts.pending} of` : "has";
    const line = `agent job ${job.id.slice(0, 8)} ${how} ${counts.total} rows`;
    this.#emit(JSON.stringify(startedEvent(job, counts, resumed)), { line, required: true });
  }

  warning(message: string): void {
    const { threadId } = this.#context;
    this.#context.notify({ method: "warning", threadId, message }, { required: true });
  }

  progress(progress: JobProgress): void {
    const now = this.#clock.monotonic();
    if (now - this.#reportedAtMs < PROGRESS_INTERVAL_MS) return;
    this.#reportedAtMs = now;
    this.#emit(JSON.stringify(progressEvent(progress)), { status: formatProgress(progress, STATUS_COLUMNS) });
  }

  /** Reports the end of a row agent on the thread of that agent, so that it does not end the parent run. */
  row(item: ItemRecord): void {
    const threadId = `agent_job:${this.#jobId}:${item.itemId}`;
    const failed = item.status === "failed";
    const line = `${item.itemId} failed (${item.errorClass}): ${item.error}`;
    this.#emit(rowEventLine(this.#jobId, item), failed ? { line } : {});
    this.#context.notify({
      method: "turn/completed",
      threadId,
      turn: {
        id: threadId,
        items: [],
        status: failed ? "failed" : "completed",
        error: failed ? { message: item.error ?? "" } : null,
      },
    });
    this.#context.notify({ method: "thread/closed", threadId });
  }

  ended(end: JobEnd): void {
    const { counts, job } = end.summary;
    if (this.#usageBefore) this.#context.addSubagentsUsage(subtractUsage(counts.usage, this.#usageBefore));
    const line = `agent job ${job.id.slice(0, 8)} ${job.status}: ${counts.completed} of ${counts.total} rows completed, ${counts.failed} failed; results: ${job.outputPath}`;
    this.#emit(JSON.stringify(endedEvent(end)), { line, required: true });
  }

  #emit(json: string, event: { line?: string; status?: string; required?: boolean }): void {
    const { threadId, turnId } = this.#context;
    const { required = false, ...shown } = event;
    this.#context.notify({ method: "tool/event", threadId, turnId, event: { json, ...shown } }, { required });
  }
}
