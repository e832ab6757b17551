import { NO_USAGE, type TokenUsage } from "../../agent/token-usage.ts";
import type { Clock } from "../../async/clock.ts";
import type { ErrorClass, ItemRecord } from "../job.ts";
import type { Claim, JobLedger } from "../ledger/job-ledger.ts";
import type { RowRetry } from "../output/job-listener.ts";
import type { EndedAttempt, Refusal, RowAgent } from "../row/row-outcome.ts";
import type { Limiter } from "./rate-limiter.ts";

export interface LaneOptions {
  ledger: JobLedger;
  rowAgent: RowAgent;
  limiter: Pick<Limiter, "lastAnswerAtMs">;
  maxAttempts: number;
  /** Whether the fallback model can still be asked about a row that this attempt's model failed. */
  hasFallbackLeft(item: ItemRecord): boolean;
  clock: Clock;
  random: () => number;
  /** Pauses the job; called before the row is released, so that no lane claims it again. */
  pause(reason: string): void;
}

/** The outcome of a claimed row, once the ledger has it. */
export type LaneEnd =
  | { type: "completed"; item: ItemRecord; usage: TokenUsage; stop: boolean }
  | { type: "failed"; item: ItemRecord; usage: TokenUsage; refusal: Refusal | undefined }
  | { type: "retrying"; retry: RowRetry; usage: TokenUsage }
  /** The row was released, or another process has it. */
  | { type: "let-go"; usage: TokenUsage };

/** Works on one row. Resolves when the ledger has the row's outcome; only then is the lane free. */
export async function workRow(
  options: LaneOptions,
  claim: Claim,
  signal: AbortSignal,
  isStopped: boolean,
): Promise<LaneEnd> {
  const { rowAgent, ledger, limiter, clock } = options;
  const beganAtMs = clock.monotonic();
  const outcome: EndedAttempt = isStopped
    ? { type: "interrupted", usage: NO_USAGE }
    : await rowAgent(claim, signal);
  switch (outcome.type) {
    case "reported":
      return {
        type: "completed",
        item: outcome.item,
        usage: outcome.usage,
        stop: outcome.stop,
      };
    case "failed":
      return settleFailure(options, claim, outcome);
    case "exhausted":
      if (!outcome.apiAway && limiter.lastAnswerAtMs >= beganAtMs) {
        return settleFailure(options, claim, { ...outcome, type: "failed", final: false });
      }
      // No row has had an answer since, or for too long: the API is at fault, not the row.
      options.pause(`the API cannot be used: ${outcome.message}`);
      break;
    case "wall":
      options.pause(outcome.message);
      break;
    case "interrupted":
    case "hostLost":
      break;
    case "superseded":
      return { type: "let-go", usage: NO_USAGE };
  }
  await ledger.release(claim, outcome.usage, outcome.transcript);
  return { type: "let-go", usage: outcome.usage };
}

async function settleFailure(
  options: LaneOptions,
  claim: Claim,
  failure: Extract<EndedAttempt, { type: "failed" }>,
): Promise<LaneEnd> {
  const { ledger, maxAttempts } = options;
  const { errorClass, message, usage } = failure;
  const isDone = failure.final || claim.item.attempts >= maxAttempts;
  if (!isDone || options.hasFallbackLeft(claim.item)) {
    const delayMs = retryDelay(options, claim.item.attempts, errorClass);
    const isHeld = await ledger.retry(claim, failure, delayMs);
    const retry = { item: claim.item, errorClass, message, delayMs };
    return isHeld ? { type: "retrying", retry, usage } : { type: "let-go", usage };
  }
  const item = await ledger.fail(claim, failure);
  return item ? { type: "failed", item, usage, refusal: failure.refusal } : { type: "let-go", usage };
}

/** Delay before a row is retried; doubles with each attempt. */
const RETRY_BASE_MS = 500;
const RETRY_MAX_MS = 30_000;

/** A wrong answer of the model can be retried at once; after other failures a delay helps. */
function retryDelay({ random }: LaneOptions, attempts: number, errorClass: ErrorClass): number {
  if (errorClass === "no_report" || errorClass === "schema") return 0;
  return Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** (attempts - 1)) * (0.9 + 0.2 * random());
}
