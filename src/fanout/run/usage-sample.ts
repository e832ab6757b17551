import { addUsage, NO_USAGE, type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
import type { JobTask } from "../job.ts";
import type { JobStore } from "../ledger/job-ledger.ts";

/** What rows of a task have used so far. */
export interface SampledUsage {
  rows: number;
  usage: TokenUsage;
}

/** Enough for a mean; a job may have a million rows. */
const MAX_SAMPLED_ROWS = 1_000;

/**
 * Usage of rows that a model has answered: those of the job of this key, else of the newest job with the same task, whatever its
 * table. Null when there is none yet.
 */
export async function sampledUsage(
  store: JobStore,
  key: string,
  task: JobTask,
): Promise<SampledUsage | null> {
  const same = await store.find(key);
  const wanted = JSON.stringify(task);
  const others = (await store.list()).filter((job) => JSON.stringify(job.task) === wanted);
  for (const job of same ? [same, ...others] : others) {
    const sample = await sampleOf(store, job.id);
    if (sample.rows > 0) return sample;
  }
  return null;
}

async function sampleOf(store: JobStore, jobId: string): Promise<SampledUsage> {
  const sample = { rows: 0, usage: NO_USAGE };
  const opened = await store.open(jobId);
  if (!opened) return sample;
  await using ledger = opened;
  for await (const item of ledger.items({ statuses: ["completed"] })) {
    // A row that reused another job's answer tells nothing about the cost of an answer.
    if (totalTokens(item.usage) === 0) continue;
    sample.rows++;
    sample.usage = addUsage(sample.usage, item.usage);
    if (sample.rows >= MAX_SAMPLED_ROWS) break;
  }
  return sample;
}
