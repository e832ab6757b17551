import type { HostProcess } from "../../exec/backend/host-backend.ts";

/** Reports whether a process has neither exited nor failed, even if its clients have not been notified yet. */
export function isLive({ log }: HostProcess): boolean {
  return log.exit === null && log.failure === null && !log.isClosed;
}

/** Calls `onEnd` once when a process is no longer live; at once if it already ended. */
export function onceEnded(process: HostProcess, onEnd: () => void): void {
  if (!isLive(process)) {
    onEnd();
    return;
  }
  const stop = process.log.listen(() => {
    if (isLive(process)) return;
    stop();
    onEnd();
  });
}

/** Kills a process whose session has ended, and the descendants that it left behind. */
export function endWithSession(process: HostProcess): void {
  void process.terminateWithReason("sessionExpired", { type: "force" }).catch(() => undefined);
}
