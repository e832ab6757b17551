import type { HostProcess } from "./host-backend.ts";

/** Reports whether a process has neither exited nor failed, even if its clients have not been notified yet. */
export function isLive({ log }: HostProcess): boolean {
  return log.exit === null && log.failure === null && !log.isClosed;
}

/** Reports whether the event log of a process is complete. */
export function isLogComplete({ log }: HostProcess): boolean {
  return log.isClosed || log.failure !== null;
}

/** Calls `onEnd` once when a process is no longer live; at once if it already ended. */
export function onceEnded(process: HostProcess, onEnd: () => void): void {
  once(process, () => !isLive(process), onEnd);
}

/** Calls `onComplete` once when the event log of a process is complete; at once if it already is. */
export function onceLogComplete(process: HostProcess, onComplete: () => void): void {
  once(process, () => isLogComplete(process), onComplete);
}

function once({ log }: HostProcess, condition: () => boolean, listener: () => void): void {
  if (condition()) {
    listener();
    return;
  }
  const stop = log.listen(() => {
    if (!condition()) return;
    stop();
    listener();
  });
}

/** Kills a process whose session has ended, and the descendants that it left behind. */
export function endWithSession(process: HostProcess): void {
  void process.terminateWithReason("sessionExpired", { type: "force" }).catch(() => undefined);
}
