import type { ItemRecord, JobRecord } from "../job.ts";

type Attempt = Pick<ItemRecord, "attempts" | "errorClass">;

/** The model for the present attempt: the job's, or the fallback for rows that the first model refused or failed. */
export function modelOf(job: Pick<JobRecord, "task" | "settings">, item: Attempt): string {
  const { model = job.task.model, fallbackModel } = job.settings;
  return fallbackModel !== undefined && isLastResort(job, item) ? fallbackModel : model;
}

/** Whether the fallback model has not been asked yet about a row that the first model failed. */
export function hasFallbackLeft(job: Pick<JobRecord, "settings">, item: Attempt): boolean {
  return job.settings.fallbackModel !== undefined && !isLastResort(job, item);
}

function isLastResort({ settings }: Pick<JobRecord, "settings">, item: Attempt): boolean {
  return item.attempts > settings.maxAttempts || item.errorClass === "refused";
}
