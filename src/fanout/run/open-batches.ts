import { systemClock } from "../../async/clock.ts";
import { affordableBatchRows } from "../batch/batch-budget.ts";
import { BatchRun } from "../batch/batch-run.ts";
import type { Price } from "../cost/price-table.ts";
import type { ItemRecord, JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import type { Companion } from "./background-tasks.ts";
import type { CoordinatorOptions } from "./coordinator.ts";

/** How long to wait for an API that accepts no batches, unless the caller says otherwise. */
const DEFAULT_OUTAGE_PATIENCE_MS = 10 * 60_000;

export interface RunningBatches extends Companion {
  readonly out: BatchRun["out"];
}

/** Null for a run without batches: none is requested, and none is open at the provider. */
export async function openBatches(
  options: CoordinatorOptions,
  ledger: JobLedger,
  job: JobRecord,
  task: CompiledTask,
  run: { folder: string; price: Price | null; tell: (item: ItemRecord) => void },
): Promise<RunningBatches | null> {
  const isOut = (await ledger.batches.parts()).some((part) => part.state !== "done");
  if (!isOut && job.settings.batch !== true) return null;
  const { batches: api, budget, listener, clock = systemClock } = options;
  if (!api)
    throw new Error(
      "this job has rows in batches, and this kind of API has no batches; resume it with the API it was begun with",
    );
  const { outagePatienceMs = DEFAULT_OUTAGE_PATIENCE_MS } = options;
  const isLimited = budget?.tokens !== undefined || budget?.usd !== undefined;
  let batch: BatchRun | null = null;
  return {
    get out() {
      return batch?.out ?? null;
    },
    run: (signal) => {
      batch = new BatchRun({
        job,
        ledger,
        task,
        api,
        folder: run.folder,
        clock,
        signal,
        limits: options.batchLimits,
        affordableRows: isLimited
          ? async (rowsOut) => affordableBatchRows(budget, run.price, await ledger.counts(), rowsOut)
          : undefined,
        outagePatienceMs,
        onSettled: run.tell,
        onTrouble: (message) => listener?.warning?.(message),
        pause: async (reason) => {
          await ledger.setStatus("paused", ["running"], reason);
        },
      });
      return batch.run();
    },
  };
}
