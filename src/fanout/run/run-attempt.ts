import { NO_USAGE, type TokenUsage } from "../../agent/token-usage.ts";
import type { Clock } from "../../async/clock.ts";
import type { ErrorClass, ItemRecord } from "../job.ts";
import type { ItemLease, JobLedger } from "../ledger/job-ledger.ts";
import type { RowRetry } from "../output/job-listener.ts";
import type { ApiRejection, EndedAttempt, RowAgent } from "../row/row-outcome.ts";
import type { RateLimiter } from "./rate-limiter.ts";

export interface AttemptRunOptions {
  ledger: JobLedger;
  rowAgent: RowAgent;
  limiter: Pick<RateLimiter, "lastAnswerAtMs">;
  maxAttempts: number;
  /** Reports whether the fallback model can still try a row that this attempt's model failed. */
  hasFallbackLeft(item: ItemRecord): boolean;
  /** Reports whether this attempt is that of the fallback model, which is the last one. */
  usesFallback(item: ItemRecord): boolean;
  clock: Clock;
  random: () => number;
  /** Pauses the job. Called before the row is released, so that no slot leases the row again. */
  pause(reason: string): void;
}

/** The outcome of a leased row, after the ledger has stored it. */
export type AttemptResult =
  | { type: "completed"; item: ItemRecord; usage: TokenUsage; stop: boolean }
  | { type: "failed"; item: ItemRecord; usage: TokenUsage; refusal: ApiRejection | undefined }
  | { type: "retrying"; retry: RowRetry; usage: TokenUsage }
  /** The row was released, or another process has it. */
  | { type: "released"; usage: TokenUsage };

/** Executes one row. Resolves when the ledger has its outcome; only then is the slot free. */
export async function runAttempt(
  options: AttemptRunOptions,
  lease: ItemLease,
  signal: AbortSignal,
  isStopped: boolean,
): Promise<AttemptResult> {
  const { rowAgent, ledger, limiter, clock } = options;
  const beganAtMs = clock.monotonic();
  const outcome: EndedAttempt = isStopped ? { type: "interrupted", usage: NO_USAGE } : await rowAgent(lease, signal);
  switch (outcome.type) {
    case "reported":
      return { ...outcome, type: "completed" };
    case "failed":
      return recordFailure(options, lease, outcome);
    case "exhausted":
      if (!outcome.isOutage && limiter.lastAnswerAtMs !== null && limiter.lastAnswerAtMs >= beganAtMs) {
        return recordFailure(options, lease, { ...outcome, type: "failed", final: false });
      }
      // The API answered no row since, or for too long: the API is the cause, not the row.
      options.pause(`the API cannot be used: ${outcome.message}`);
      break;
    case "blocked":
      options.pause(outcome.message);
      break;
    case "interrupted":
    case "hostLost":
      break;
    case "superseded":
      return { type: "released", usage: NO_USAGE };
  }
  await ledger.release(lease, outcome.usage, outcome.transcript);
  return { type: "released", usage: outcome.usage };
}

async function recordFailure(
  options: AttemptRunOptions,
  lease: ItemLease,
  failure: Extract<EndedAttempt, { type: "failed" }>,
): Promise<AttemptResult> {
  const { ledger, maxAttempts } = options;
  const { errorClass, message, usage } = failure;
  const isDone = failure.final || lease.item.attempts >= maxAttempts || options.usesFallback(lease.item);
  if (!isDone || options.hasFallbackLeft(lease.item)) {
    const delayMs = retryDelay(options, lease.item.attempts, errorClass);
    const isHeld = await ledger.retry(lease, failure, delayMs);
    const retry = { item: lease.item, errorClass, message, delayMs };
    return isHeld ? { type: "retrying", retry, usage } : { type: "released", usage };
  }
  const item = await ledger.fail(lease, failure);
  return item ? { type: "failed", item, usage, refusal: failure.refusal } : { type: "released", usage };
}

/** First delay before a retry of a row; doubles with each attempt. */
const RETRY_BASE_MS = 500;
const RETRY_MAX_MS = 30_000;

/** Returns the delay before a retry: none after an invalid answer, a backoff after other failures. */
function retryDelay({ random }: AttemptRunOptions, attempts: number, errorClass: ErrorClass): number {
  if (errorClass === "no_report" || errorClass === "schema") return 0;
  return Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** (attempts - 1)) * (0.9 + 0.2 * random());
}
