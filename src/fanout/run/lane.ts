import { NO_USAGE, type TokenUsage } from "../../agent/usage.ts";
import type { Clock } from "../../async/clock.ts";
import type { ErrorClass, ItemRecord } from "../job.ts";
import type { Claim, JobLedger } from "../ledger/job-ledger.ts";
import type { RowRetry } from "../output/job-listener.ts";
import type { EndedAttempt, Refusal, RowAgent } from "../row/row-outcome.ts";
import type { Limiter } from "./limiter.ts";

export interface LaneOptions {
  ledger: JobLedger;
  rowAgent: RowAgent;
  limiter: Pick<Limiter, "lastAnswerAtMs">;
  maxAttempts: number;
  /** Whether another model can still be asked about a row that this attempt's is done with. */
  hasFallbackLeft(item: ItemRecord): boolean;
  clock: Clock;
  random: () => number;
  /** Says that no row can be worked on for now; called before the row is given back, so that no lane takes it again. */
  pause(reason: string): void;
}

/** What has become of a claimed row, once the ledger has it. */
export type LaneEnd =
  | { type: "completed"; item: ItemRecord; usage: TokenUsage; stop: boolean }
  | { type: "failed"; item: ItemRecord; usage: TokenUsage; refusal: Refusal | undefined }
  | { type: "retrying"; retry: RowRetry; usage: TokenUsage }
  /** The row was given back, or another process has it. */
  | { type: "let-go"; usage: TokenUsage };

/** Works on one row. It ends when the ledger has the row's outcome; only then is the lane free. */
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
      // No row has had an answer since, or for too long: the fault is the API's, not the row's.
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

/** Before a row is tried again; doubles with each attempt. */
const RETRY_BASE_MS = 500;
const RETRY_MAX_MS = 30_000;

/** What the model said wrong it may say right at once; what broke needs a moment. */
function retryDelay({ random }: LaneOptions, attempts: number, errorClass: ErrorClass): number {
  if (errorClass === "no_report" || errorClass === "schema") return 0;
  return Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** (attempts - 1)) * (0.9 + 0.2 * random());
}
