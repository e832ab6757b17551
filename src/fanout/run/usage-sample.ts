import { addUsage, NO_USAGE, type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
import type { JobTask } from "../job.ts";
import type { JobStore } from "../ledger/job-ledger.ts";

/** Usage of some rows of a task. */
export interface UsageSample {
  rows: number;
  usage: TokenUsage;
}

/** Sufficient for a mean; a job may have a million rows. */
const MAX_SAMPLED_ROWS = 1_000;

/**
 * Returns the usage of answered rows: of the job with this key, otherwise of the newest job with the same task and any
 * table. Returns null if there are none.
 */
export async function readUsageSample(store: JobStore, key: string, task: JobTask): Promise<UsageSample | null> {
  const same = await store.find(key);
  const taskText = JSON.stringify(task);
  const others = (await store.list()).filter((job) => JSON.stringify(job.task) === taskText);
  for (const job of same ? [same, ...others] : others) {
    const sample = await readSample(store, job.id);
    if (sample.rows > 0) return sample;
  }
  return null;
}

async function readSample(store: JobStore, jobId: string): Promise<UsageSample> {
  const sample = { rows: 0, usage: NO_USAGE };
  await using ledger = await store.open(jobId);
  if (!ledger) return sample;
  for await (const item of ledger.items({ statuses: ["completed"] })) {
    // A reused answer used no tokens, so it would lower the mean.
    if (totalTokens(item.usage) === 0) continue;
    sample.rows++;
    sample.usage = addUsage(sample.usage, item.usage);
    if (sample.rows >= MAX_SAMPLED_ROWS) break;
  }
  return sample;
}
