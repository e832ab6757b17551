import type { ScheduleEnd } from "../job.ts";

/** A task that runs beside the rows of a run: batches at the provider, reading the table. */
export interface Companion {
  /** Resolves when it has nothing left to do, or soon after the signal. */
  run(signal: AbortSignal): Promise<void>;
}

/** Works on rows while companions run: an error of a companion ends the work, and the end of the work ends them. */
export async function withCompanions(
  companions: readonly (Companion | null)[],
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<ScheduleEnd>,
): Promise<ScheduleEnd> {
  const over = new AbortController();
  const broken = new AbortController();
  const running = companions.map(async (companion) => {
    try {
      await companion?.run(AbortSignal.any([over.signal, signal]));
    } catch (error) {
      // After the work has ended or the user has interrupted it, an error only means that the companion was aborted.
      if (signal.aborted || over.signal.aborted) return;
      broken.abort(error);
    }
  });
  let end: ScheduleEnd;
  try {
    end = await work(AbortSignal.any([signal, broken.signal]));
  } finally {
    over.abort(new Error("the run is over"));
    await Promise.all(running);
  }
  if (broken.signal.aborted) throw broken.signal.reason;
  return end;
}
