import { ApiHealth } from "../../agent/api/api-health.ts";
import type { ModelApi } from "../../agent/api/model-api.ts";
import { type CallModel, createModelCaller, type RetryPolicy } from "../../agent/api/model-caller.ts";
import type { BatchApi } from "../../agent/batch/batch-api.ts";
import { type Clock, systemClock } from "../../async/clock.ts";
import type { JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import { createRowAgent, type OpenRowTools } from "../row/row-agent.ts";
import type { RowAgent } from "../row/row-outcome.ts";
import { Limiter } from "./rate-limiter.ts";

/** What a process needs to work on rows of any job. */
export interface RowResources {
  callModel: CallModel;
  limiter: Limiter;
  health: ApiHealth;
  /** The provider's batch API; null: it has none. */
  batches?: BatchApi | null | undefined;
  outagePatienceMs?: number | undefined;
  concurrency: number;
  /** The tools a row agent has besides the report; null: none. */
  openTools?: OpenRowTools | undefined;
  signal: AbortSignal;
  clock?: Clock | undefined;
}

/**
 * Patient, because a lost row costs more than a minute: about 13 s of transport errors if a single call has them, ten
 * minutes if the API answers no call, and rate limits for as long as any call still gets an answer.
 */
const FANOUT_RETRY_POLICY: RetryPolicy = {
  transportRetries: 6,
  rateLimitRetries: 30,
  baseDelayMs: 200,
  maxDelayMs: 30_000,
  maxRetryAfterMs: 15 * 60_000,
  outagePatienceMs: 10 * 60_000,
};

/** The limiter that all rows share, and the model call that passes through it. */
export function createRowCaller(
  api: ModelApi,
  limits: {
    width: number;
    requestsPerMinute?: number | undefined;
    tokensPerMinute?: number | undefined;
    outagePatienceMs?: number | undefined;
  },
  overrides: { clock?: Clock; random?: () => number; retry?: RetryPolicy } = {},
): Pick<RowResources, "limiter" | "health" | "batches" | "outagePatienceMs" | "callModel"> {
  const { outagePatienceMs = FANOUT_RETRY_POLICY.outagePatienceMs, ...widths } = limits;
  const limiter = new Limiter({ ...widths, clock: overrides.clock ?? systemClock });
  const health = new ApiHealth();
  const retry = { ...FANOUT_RETRY_POLICY, outagePatienceMs };
  return {
    limiter,
    health,
    batches: api.batches,
    outagePatienceMs,
    callModel: createModelCaller({ api, gate: limiter, health, retry, ...overrides }),
  };
}

/** The row agent for all rows of one job. */
export function rowAgentFor(
  resources: RowResources,
  ledger: JobLedger,
  job: JobRecord,
  task: CompiledTask,
): RowAgent {
  return createRowAgent({
    job,
    ledger,
    task,
    callModel: resources.callModel,
    openTools: resources.openTools,
    clock: resources.clock ?? systemClock,
  });
}
