import type { RunStopReason } from "../job.ts";

/** A task that runs during the work on rows: batches at the provider, reading the table. */
export interface BackgroundTask {
  /** Resolves when the task is done, or soon after the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
}

/**
 * Runs `work` together with background tasks. An error of a task ends the work, and the end of the work ends the tasks.
 */
export async function withBackgroundTasks(
  tasks: readonly (BackgroundTask | null)[],
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<RunStopReason>,
): Promise<RunStopReason> {
  const ended = new AbortController();
  const failed = new AbortController();
  const running = tasks.map(async (task) => {
    try {
      await task?.run(AbortSignal.any([ended.signal, signal]));
    } catch (error) {
      // After the end of the work or an interrupt, an error only means that the task was aborted.
      if (signal.aborted || ended.signal.aborted) return;
      failed.abort(error);
    }
  });
  let end: RunStopReason;
  try {
    end = await work(AbortSignal.any([signal, failed.signal]));
  } finally {
    ended.abort(new Error("the run is over"));
    await Promise.all(running);
  }
  if (failed.signal.aborted) throw failed.signal.reason;
  return end;
}
