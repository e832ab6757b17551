import type { ApiHealth, ApiSilence } from "../../agent/api/api-health.ts";
import { type Clock, sleep } from "../../async/clock.ts";
import { costOf, type Price } from "../cost/price-table.ts";
import type { ItemRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import { type Progress, RateMeter } from "./job-progress.ts";

/** How much of its width the limiter uses now. */
interface LimiterState {
  readonly width: number;
  readonly maxWidth: number;
  readonly heldUntilMs: number;
}

export interface ProgressTickerOptions {
  ledger: JobLedger;
  limiter: LimiterState | null;
  health: Pick<ApiHealth, "silence"> | null;
  /** The price of the job's model, where known. */
  price?: Price | null | undefined;
  clock: Clock;
  /** Whether the table is still being read. */
  isReading?: (() => boolean) | undefined;
  /** What is in batches at the provider now. */
  batches?: (() => Progress["batches"]) | undefined;
  onProgress(progress: Progress): void;
  /** Called for rows that other processes have settled. */
  onSettled?(item: ItemRecord): void;
}

/** Looks smooth to a person. */
const TICK_MS = 250;
/** Counting may take at most this share of the time, so a very large job is counted less often. */
const COUNTING_SHARE = 0.05;
/** Tolerance for clock differences between machines and for transactions that commit out of order. */
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

  /** Emits the final state, then stops. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#ticking?.catch(() => undefined);
    await this.#look();
  }

  async #tick(): Promise<void> {
    const { clock } = this.#options;
    while (!this.#stopping.signal.aborted) {
      const beganAtMs = clock.monotonic();
      await this.#look();
      const tookMs = clock.monotonic() - beganAtMs;
      await sleep(clock, Math.max(TICK_MS, tookMs / COUNTING_SHARE), this.#stopping.signal);
    }
  }

  async #look(): Promise<void> {
    const { ledger, limiter, health, price, clock, onSettled } = this.#options;
    if (ledger.shared && onSettled) {
      const lookedAtMs = clock.now();
      // The earlier of the two, because the clock may have been set back.
      const sinceMs = Math.min(this.#sinceMs, lookedAtMs - OVERLAP_MS);
      for await (const item of ledger.settledSince(sinceMs)) onSettled(item);
      this.#sinceMs = lookedAtMs - OVERLAP_MS;
    }
    const counts = await ledger.counts();
    const now = clock.monotonic();
    this.#options.onProgress({
      jobId: ledger.jobId,
      counts,
      costUsd: price ? costOf(price, counts.usage) : null,
      ...this.#meter.sample(counts, now),
      width: limiter?.width ?? 0,
      maxWidth: limiter?.maxWidth ?? 0,
      apiAway: apiAway(health?.silence ?? null, now),
      isReading: this.#options.isReading?.() ?? false,
      batches: this.#options.batches?.() ?? null,
      heldMs: limiter ? Math.max(0, limiter.heldUntilMs - now) : 0,
    });
  }
}

/** An outage is shown after a second without an answer; a single failure is not. */
const TOLD_AFTER_MS = 1_000;

function apiAway(silence: ApiSilence | null, nowMs: number): Progress["apiAway"] {
  if (!silence || nowMs - silence.sinceMs < TOLD_AFTER_MS) return null;
  return { seconds: Math.floor((nowMs - silence.sinceMs) / 1000), reason: silence.reason };
}
