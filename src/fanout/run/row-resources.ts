import { ApiHealth } from "../../agent/api/api-health.ts";
import type { ModelApi } from "../../agent/api/model-api.ts";
import {
  type CallModel,
  createModelCaller,
  DEFAULT_RETRY_POLICY,
  type RetryPolicy,
} from "../../agent/api/model-caller.ts";
import type { BatchApi } from "../../agent/batch/batch-api.ts";
import { type Clock, systemClock } from "../../async/clock.ts";
import type { JobRecord } from "../job.ts";
import { DEFAULT_OUTAGE_TIMEOUT_MS } from "../job-settings.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import { createRowAgent, type OpenRowTools } from "../row/row-agent.ts";
import type { RowAgent } from "../row/row-outcome.ts";
import { type LimiterOptions, RateLimiter } from "./rate-limiter.ts";

/** Resources of a process that executes rows of any job. */
export interface RowResources {
  callModel: CallModel;
  limiter: RateLimiter;
  health: ApiHealth;
  /** Batch API of the provider; null if it has none. */
  batches?: BatchApi | null | undefined;
  outageTimeoutMs?: number | undefined;
  concurrency: number;
  /** Opens the tools of row agents in addition to the report tool; absent: none. */
  openTools?: OpenRowTools | undefined;
  signal: AbortSignal;
  clock?: Clock | undefined;
}

/**
 * Retries last long, because a lost row costs more than a minute of waiting: about 13 s of transport errors for a
 * single call, some minutes of rate limits, and ten minutes if the API answers no call.
 */
const FANOUT_RETRY_POLICY: RetryPolicy = { ...DEFAULT_RETRY_POLICY, transportRetries: 6, rateLimitRetries: 30 };

/** Returns the limiter that all rows share, and the model caller that uses it. */
export function createRowCaller(
  api: ModelApi,
  limits: Omit<LimiterOptions, "clock"> & { outageTimeoutMs?: number | undefined },
  overrides: { clock?: Clock; random?: () => number; retry?: RetryPolicy } = {},
): Pick<RowResources, "limiter" | "health" | "batches" | "outageTimeoutMs" | "callModel"> {
  const { outageTimeoutMs = DEFAULT_OUTAGE_TIMEOUT_MS, ...limiterOptions } = limits;
  const limiter = new RateLimiter({ ...limiterOptions, clock: overrides.clock ?? systemClock });
  const health = new ApiHealth();
  const retry = { ...FANOUT_RETRY_POLICY, outageTimeoutMs };
  return {
    limiter,
    health,
    batches: api.batches,
    outageTimeoutMs,
    callModel: createModelCaller({ api, gate: limiter, health, retry, ...overrides }),
  };
}

/** Returns the row agent of one job. */
export function rowAgentFor(resources: RowResources, ledger: JobLedger, job: JobRecord, task: CompiledTask): RowAgent {
  return createRowAgent({ ...resources, clock: resources.clock ?? systemClock, job, ledger, task });
}
