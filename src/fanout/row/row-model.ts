import type { ItemRecord, JobRecord } from "../job.ts";

type Attempt = Pick<ItemRecord, "attempts" | "errorClass">;

/**
 * Returns the model of the current attempt: the model of the job, or the fallback model if the first model refused the
 * row or failed all attempts.
 */
export function modelForAttempt(job: Pick<JobRecord, "task" | "settings">, item: Attempt): string {
  const { model = job.task.model, fallbackModel } = job.settings;
  return fallbackModel !== undefined && usesFallback(job, item) ? fallbackModel : model;
}

/** Reports whether the fallback model has not tried the row yet. */
export function hasFallbackLeft(job: Pick<JobRecord, "settings">, item: Attempt): boolean {
  return job.settings.fallbackModel !== undefined && !usesFallback(job, item);
}

function usesFallback({ settings }: Pick<JobRecord, "settings">, item: Attempt): boolean {
  return item.attempts > settings.maxAttempts || item.errorClass === "refused";
}
