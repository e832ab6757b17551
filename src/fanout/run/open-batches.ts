import { systemClock } from "../../async/clock.ts";
import { affordableBatchRows } from "../batch/batch-budget.ts";
import { BatchRun, type BatchRunOptions } from "../batch/batch-run.ts";
import type { Price } from "../cost/price-table.ts";
import { otherStop } from "../job.ts";
import { DEFAULT_OUTAGE_TIMEOUT_MS } from "../job-settings.ts";
import type { CoordinatorOptions } from "./coordinator.ts";

/** Returns the batch run, or null if no batches are requested and none are at the provider. */
export async function openBatches(
  options: CoordinatorOptions,
  run: Pick<BatchRunOptions, "ledger" | "job" | "task" | "directory" | "onFinished"> & {
    price: Price | null;
  },
): Promise<BatchRun | null> {
  const { ledger, job, price } = run;
  const hasOpenBatches = (await ledger.batches.groups()).some((group) => group.state !== "done");
  if (!hasOpenBatches && job.settings.batch !== true) return null;
  const { batches: api, budget, listener, clock = systemClock } = options;
  if (!api)
    throw new Error("this job has rows in batches, but this API has no batches; resume the job with its original API");
  const isLimited = budget?.tokens !== undefined || budget?.usd !== undefined;
  return new BatchRun({
    ...run,
    api,
    clock,
    limits: options.batchLimits,
    affordableRows: isLimited
      ? async (rowsOut) => affordableBatchRows(budget, price, await ledger.counts(), rowsOut)
      : undefined,
    outageTimeoutMs: options.outageTimeoutMs ?? DEFAULT_OUTAGE_TIMEOUT_MS,
    onWarning: (message) => listener?.warning?.(message),
    pause: async (reason) => {
      await ledger.setStatus("paused", ["running"], otherStop(reason));
    },
  });
}
