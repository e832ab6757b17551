import { type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
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
  batches?: { parts: number; rows: number; answered: number } | null | undefined;
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

/**
 * Formats `job 1a2b3c4d [####----] 50 of 100 rows (50%), 1 failed, 16 running, 34 waiting, 12.5 rows/s, 4s left, 8.1k
 * tokens`, padded to the given width. A narrow terminal cuts the end, so the most important values come first.
 */
export function formatProgress(progress: JobProgress, columns: number): string {
  const { counts, apiOutage } = progress;
  const done = counts.completed + counts.failed;
  const percent = counts.total === 0 ? 100 : Math.floor((done * 100) / counts.total);
  const parts = [
    progress.isReading
      ? `${done} of more than ${counts.total} rows (the table is being read)`
      : `${done} of ${counts.total} rows (${percent}%)`,
  ];
  if (apiOutage) parts.push(`no answer from the API for ${durationText(apiOutage.seconds)} (${apiOutage.reason})`);
  if (counts.failed > 0) parts.push(`${counts.failed} failed`);
  parts.push(`${counts.running} running`, `${counts.pending} waiting`);
  const { batches } = progress;
  if (batches) {
    const name = batches.parts === 1 ? "1 batch" : `${batches.parts} batches`;
    parts.push(`${batches.rows} of them in ${name} (${batches.answered} answered)`);
  }
  if (progress.ratePerSecond > 0) parts.push(`${progress.ratePerSecond.toFixed(1)} rows/s`);
  if (progress.etaSeconds !== null && !progress.isReading) parts.push(`${durationText(progress.etaSeconds)} left`);
  parts.push(formatUsage(counts.usage, progress.costUsd));
  if (progress.width < progress.maxWidth) {
    parts.push(`${progress.width} of ${progress.maxWidth} slots open`);
  }
  if (progress.pausedMs > 0) parts.push(`paused for ${durationText(Math.ceil(progress.pausedMs / 1000))}`);
  const head = `job ${progress.jobId.slice(0, 8)} [`;
  const tail = `] ${parts.join(", ")}`;
  const bar = Math.min(MAX_BAR_COLUMNS, Math.max(MIN_BAR_COLUMNS, columns - 1 - head.length - tail.length));
  const filled = counts.total === 0 ? bar : Math.floor((done * bar) / counts.total);
  return `${head}${"#".repeat(filled)}${"-".repeat(bar - filled)}${tail}`;
}

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

export function durationText(seconds: number): string {
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m${String(seconds % 60).padStart(2, "0")}s`;
  return `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, "0")}m`;
}

export function countText(count: number): string {
  if (count < 10_000) return `${count}`;
  if (count < 1_000_000) return `${(count / 1000).toFixed(1)}k`;
  return `${(count / 1_000_000).toFixed(1)}M`;
}
