import { systemClock } from "../../async/clock.ts";
import type { OutputDirectory } from "../../files/output-directory.ts";
import { affordableBatchRows } from "../batch/batch-budget.ts";
import { BatchRun } from "../batch/batch-run.ts";
import type { Price } from "../cost/price-table.ts";
import type { ItemRecord, JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import type { BackgroundTask } from "./background-tasks.ts";
import type { CoordinatorOptions } from "./coordinator.ts";

/** Default outage timeout of a batch API. */
const DEFAULT_OUTAGE_TIMEOUT_MS = 10 * 60_000;

export interface RunningBatches extends BackgroundTask {
  readonly out: BatchRun["submittedRows"];
}

/** Returns the batch run, or null if no batches are requested and none are at the provider. */
export async function openBatches(
  options: CoordinatorOptions,
  ledger: JobLedger,
  job: JobRecord,
  task: CompiledTask,
  run: { directory: OutputDirectory; price: Price | null; reportRow: (item: ItemRecord) => void },
): Promise<RunningBatches | null> {
  const isOut = (await ledger.batches.groups()).some((part) => part.state !== "done");
  if (!isOut && job.settings.batch !== true) return null;
  const { batches: api, budget, listener, clock = systemClock } = options;
  if (!api)
    throw new Error(
      "this job has rows in batches, but this API has no batches; resume the job with its original API",
    );
  const { outageTimeoutMs = DEFAULT_OUTAGE_TIMEOUT_MS } = options;
  const isLimited = budget?.tokens !== undefined || budget?.usd !== undefined;
  let batch: BatchRun | null = null;
  return {
    get out() {
      return batch?.submittedRows ?? null;
    },
    run: (signal) => {
      batch = new BatchRun({
        job,
        ledger,
        task,
        api,
        directory: run.directory,
        clock,
        signal,
        limits: options.batchLimits,
        affordableRows: isLimited
          ? async (rowsOut) => affordableBatchRows(budget, run.price, await ledger.counts(), rowsOut)
          : undefined,
        outageTimeoutMs,
        onFinished: run.reportRow,
        onWarning: (message) => listener?.warning?.(message),
        pause: async (reason) => {
          await ledger.setStatus("paused", ["running"], reason);
        },
      });
      return batch.run();
    },
  };
}
