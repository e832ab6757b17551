import type { ItemRecord, JobRecord } from "../job.ts";

type Attempt = Pick<ItemRecord, "attempts" | "errorClass">;

/** The model that the attempt at hand asks: the job's, or the one for rows that it would not or could not answer. */
export function modelOf(job: Pick<JobRecord, "task" | "settings">, item: Attempt): string {
  const { model = job.task.model, fallbackModel } = job.settings;
  return fallbackModel !== undefined && isLastResort(job, item) ? fallbackModel : model;
}

/** Whether another model has not been asked yet for a row that the first one is done with. */
export function hasFallbackLeft(job: Pick<JobRecord, "settings">, item: Attempt): boolean {
  return job.settings.fallbackModel !== undefined && !isLastResort(job, item);
}

function isLastResort({ settings }: Pick<JobRecord, "settings">, item: Attempt): boolean {
  return item.attempts > settings.maxAttempts || item.errorClass === "refused";
}
