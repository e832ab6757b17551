import type { ApiHealth, ApiOutage } from "../../agent/api/api-health.ts";
import { type Clock, sleep } from "../../async/clock.ts";
import { costInUsd, type Price } from "../cost/price-table.ts";
import type { ItemRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import { type JobProgress, RateMeter } from "./job-progress.ts";

/** Current concurrency of the limiter. */
interface LimiterState {
  readonly concurrency: number;
  readonly maxConcurrency: number;
  readonly pausedUntilMs: number;
}

export interface ProgressTickerOptions {
  ledger: JobLedger;
  limiter: LimiterState | null;
  health: Pick<ApiHealth, "outage"> | null;
  /** Price of the model; null or absent if unknown. */
  price?: Price | null | undefined;
  clock: Clock;
  /** Reports whether the table is still being read. */
  isReading?: (() => boolean) | undefined;
  /** Returns the rows in batches at the provider. */
  batches?: (() => JobProgress["batches"]) | undefined;
  onProgress(progress: JobProgress): void;
  /** Called with rows that other processes finished. */
  onFinished?(item: ItemRecord): void;
}

/** Progress interval, short enough for a smooth display. */
const TICK_INTERVAL_MS = 250;
/** Maximum share of time spent on counting, so that a very large job is counted less often. */
const MAX_COUNTING_SHARE = 0.05;
/** Tolerance for clock differences between hosts and for transactions that commit out of order. */
const OVERLAP_MS = 60_000;

/** Polls a job and emits its progress. */
export class ProgressTicker {
  #options: ProgressTickerOptions;
  #meter = new RateMeter();
  #stopping = new AbortController();
  #ticking: Promise<void> | null = null;
  #sinceMs = 0;

  constructor(options: ProgressTickerOptions) {
    this.#options = options;
  }

  start(): void {
    this.#ticking = this.#tick();
    this.#ticking.catch(() => undefined);
  }

  /** Emits the final progress, then stops. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#ticking?.catch(() => undefined);
    await this.#poll();
  }

  async #tick(): Promise<void> {
    const { clock } = this.#options;
    while (!this.#stopping.signal.aborted) {
      const beganAtMs = clock.monotonic();
      await this.#poll();
      const tookMs = clock.monotonic() - beganAtMs;
      await sleep(clock, Math.max(TICK_INTERVAL_MS, tookMs / MAX_COUNTING_SHARE), this.#stopping.signal);
    }
  }

  async #poll(): Promise<void> {
    const { ledger, limiter, health, price, clock, onFinished } = this.#options;
    if (ledger.shared && onFinished) {
      const polledAtMs = clock.now();
      // Uses the earlier time, because the clock may have been set back.
      const sinceMs = Math.min(this.#sinceMs, polledAtMs - OVERLAP_MS);
      for await (const item of ledger.finishedSince(sinceMs)) onFinished(item);
      this.#sinceMs = polledAtMs - OVERLAP_MS;
    }
    const counts = await ledger.counts();
    const now = clock.monotonic();
    this.#options.onProgress({
      jobId: ledger.jobId,
      counts,
      costUsd: price ? costInUsd(price, counts.usage) : null,
      ...this.#meter.sample(counts, now),
      width: limiter?.concurrency ?? 0,
      maxWidth: limiter?.maxConcurrency ?? 0,
      apiOutage: shownOutage(health?.outage ?? null, now),
      isReading: this.#options.isReading?.() ?? false,
      batches: this.#options.batches?.() ?? null,
      pausedMs: limiter ? Math.max(0, limiter.pausedUntilMs - now) : 0,
    });
  }
}

/** Shows an outage after this time without an answer, so that a single failure is not shown. */
const OUTAGE_SHOWN_AFTER_MS = 1_000;

function shownOutage(outage: ApiOutage | null, nowMs: number): JobProgress["apiOutage"] {
  if (!outage || nowMs - outage.sinceMs < OUTAGE_SHOWN_AFTER_MS) return null;
  return { seconds: Math.floor((nowMs - outage.sinceMs) / 1000), reason: outage.reason };
}
