import type { ItemRecord, JobRecord } from "../job.ts";

type Attempt = Pick<ItemRecord, "attempts" | "errorClass">;

/**
 * Returns the model of the current attempt: the model of the job, or the fallback model if the first model refused the
 * row or failed all attempts.
 */
export function modelForAttempt(job: Pick<JobRecord, "task" | "settings">, item: Attempt): string {
  const { model = job.task.model, fallbackModel } = job.settings;
  return usesFallback(job, item) ? (fallbackModel ?? model) : model;
}

/** Reports whether the fallback model has not tried the row yet. */
export function hasFallbackLeft(job: Pick<JobRecord, "settings">, item: Attempt): boolean {
  return job.settings.fallbackModel !== undefined && !usesFallback(job, item);
}

/** Reports whether the current attempt is that of the fallback model, which is the last one. */
export function usesFallback({ settings }: Pick<JobRecord, "settings">, item: Attempt): boolean {
  if (settings.fallbackModel === undefined) return false;
  return item.attempts > settings.maxAttempts || item.errorClass === "refused";
}
