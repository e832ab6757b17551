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
  const over = new AbortController();
  const broken = new AbortController();
  const running = tasks.map(async (task) => {
    try {
      await task?.run(AbortSignal.any([over.signal, signal]));
    } catch (error) {
      // After the end of the work or an interrupt, an error only means that the task was aborted.
      if (signal.aborted || over.signal.aborted) return;
      broken.abort(error);
    }
  });
  let end: RunStopReason;
  try {
    end = await work(AbortSignal.any([signal, broken.signal]));
  } finally {
    over.abort(new Error("the run is over"));
    await Promise.all(running);
  }
  if (broken.signal.aborted) throw broken.signal.reason;
  return end;
}
