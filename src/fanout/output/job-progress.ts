import { type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
import { formatAge } from "../../base/text/format-age.ts";
import { formatUsdExact } from "../cost/price-table.ts";
import type { JobCounts } from "../job.ts";

export interface JobProgress {
  jobId: string;
  counts: JobCounts;
  /** Cost so far; null if the price of the model is unknown. */
  costUsd: number | null;
  /** Rows finished per second over the last half minute; 0 while there is too little data. */
  ratePerSecond: number;
  etaSeconds: number | null;
  width: number;
  maxWidth: number;
  /** Set while the API answers no call: duration and last error. */
  apiOutage: { seconds: number; reason: string } | null;
  /** Whether the table is still being read, so that more rows follow. */
  isReading?: boolean | undefined;
  /** Rows in batches at the provider, and how many of them it has processed; null: none. */
  batches?: { groups: number; rows: number; answered: number } | null | undefined;
  /** Remaining pause of requests. */
  pausedMs: number;
}

/** Window of the rate: long enough to be steady, short enough to follow changes. */
const WINDOW_MS = 30_000;

/** Computes a rate and an estimate of the remaining time from counts. */
export class RateMeter {
  #samples: { atMs: number; done: number }[] = [];

  sample(counts: JobCounts, nowMs: number): { ratePerSecond: number; etaSeconds: number | null } {
    const done = counts.completed + counts.failed;
    this.#samples.push({ atMs: nowMs, done });
    while (this.#samples.length > 2 && nowMs - (this.#samples[1]?.atMs ?? nowMs) >= WINDOW_MS) this.#samples.shift();
    const oldest = this.#samples[0];
    const elapsedMs = nowMs - (oldest?.atMs ?? nowMs);
    const rate = elapsedMs > 0 ? ((done - (oldest?.done ?? done)) * 1000) / elapsedMs : 0;
    const left = counts.total - done;
    return { ratePerSecond: rate, etaSeconds: rate > 0 ? Math.round(left / rate) : null };
  }
}

/** A value of the progress line. Fields with a larger `rank` are dropped first if the line is too narrow. */
interface ProgressField {
  rank: number;
  text: string;
}

/**
 * Formats `job 1a2b3c4d [####----] 50 of 100 rows (50%), 1 failed, 16 running, 34 waiting, 12.5 rows/s, 4s left, 8.1k
 * tokens`. If `columns` are too few, it drops the least important values, then the bar, then the job. Null as `columns` keeps
 * all values.
 */
export function formatProgress(progress: JobProgress, columns: number | null): string {
  const { counts } = progress;
  const done = counts.completed + counts.failed;
  const head = `job ${progress.jobId.slice(0, 8)} `;
  // One column stays free, because some terminals wrap after a full last column.
  const room = columns === null ? Number.POSITIVE_INFINITY : columns - 1;
  const fields = progressFieldsInOrder(progress);
  const join = () => fields.map(({ text }) => text).join(", ");
  while (fields.length > 1 && head.length + MIN_BAR_COLUMNS + 3 + join().length > room) {
    const last = fields.reduce((worst, field) => (field.rank > worst.rank ? field : worst));
    fields.splice(fields.indexOf(last), 1);
  }
  const tail = join();
  const barRoom = (columns ?? PLAIN_COLUMNS) - 1 - head.length - tail.length - 3;
  if (columns !== null && barRoom < MIN_BAR_COLUMNS) return head.length + tail.length <= room ? head + tail : tail;
  const bar = Math.min(MAX_BAR_COLUMNS, Math.max(MIN_BAR_COLUMNS, barRoom));
  const filled = counts.total === 0 ? bar : Math.floor((done * bar) / counts.total);
  return `${head}[${"#".repeat(filled)}${"-".repeat(bar - filled)}] ${tail}`;
}

function progressFieldsInOrder(progress: JobProgress): ProgressField[] {
  const { counts, apiOutage, batches, isReading } = progress;
  const done = counts.completed + counts.failed;
  const percent = counts.total === 0 ? 100 : Math.floor((done * 100) / counts.total);
  const fields: (ProgressField | false | null | undefined)[] = [
    {
      rank: 0,
      text: isReading
        ? `${done} of more than ${counts.total} rows (the table is being read)`
        : `${done} of ${counts.total} rows (${percent}%)`,
    },
    apiOutage && {
      rank: 2,
      text: `no answer from the API for ${formatAge(apiOutage.seconds * 1000)} (${apiOutage.reason})`,
    },
    counts.failed > 0 && { rank: 1, text: `${counts.failed} failed` },
    { rank: 6, text: `${counts.running} running` },
    { rank: 8, text: `${counts.pending} waiting` },
    batches && {
      rank: 7,
      text: `${batches.rows} of them in ${batches.groups === 1 ? "1 batch" : `${batches.groups} batches`} (${batches.answered} answered)`,
    },
    progress.ratePerSecond > 0 && { rank: 9, text: `${progress.ratePerSecond.toFixed(1)} rows/s` },
    progress.etaSeconds !== null && !isReading && { rank: 3, text: `${formatAge(progress.etaSeconds * 1000)} left` },
    { rank: 5, text: formatUsage(counts.usage, progress.costUsd) },
    progress.width < progress.maxWidth && {
      rank: 10,
      text: `${progress.width} of ${progress.maxWidth} slots open`,
    },
    progress.pausedMs > 0 && {
      rank: 4,
      text: `paused for ${formatAge(Math.ceil(progress.pausedMs / 1000) * 1000)}`,
    },
  ];
  return fields.filter((field) => !!field);
}

/** Width of a line with all values, for the bar. */
const PLAIN_COLUMNS = 80;
const MIN_BAR_COLUMNS = 10;
const MAX_BAR_COLUMNS = 60;

export function progressFields(progress: JobProgress): Record<string, unknown> {
  const { counts } = progress;
  return {
    job_id: progress.jobId,
    total_items: counts.total,
    is_reading: progress.isReading ?? false,
    pending_items: counts.pending,
    running_items: counts.running,
    completed_items: counts.completed,
    failed_items: counts.failed,
    rows_per_second: Math.round(progress.ratePerSecond * 10) / 10,
    eta_seconds: progress.etaSeconds,
    tokens: totalTokens(counts.usage),
    cached_tokens: counts.usage.cachedInputTokens,
    cost_usd: progress.costUsd,
    width: progress.width,
    batched_items: progress.batches?.rows ?? 0,
    api_away_seconds: progress.apiOutage?.seconds ?? null,
  };
}

/** Formats `8.1k tokens (5.0k cached), $0.12`, without zero or unknown values. */
export function formatUsage(usage: TokenUsage, costUsd: number | null): string {
  const cached = usage.cachedInputTokens > 0 ? ` (${countText(usage.cachedInputTokens)} cached)` : "";
  const cost = costUsd === null ? "" : `, ${formatUsdExact(costUsd)}`;
  return `${countText(totalTokens(usage))} tokens${cached}${cost}`;
}

export function countText(count: number): string {
  if (count < 10_000) return `${count}`;
  if (count < 1_000_000) return `${(count / 1000).toFixed(1)}k`;
  return `${(count / 1_000_000).toFixed(1)}M`;
}
