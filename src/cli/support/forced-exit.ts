import { exitImmediately } from "../../native/exit-now.ts";

/** Maximum time that open handles may keep the process alive. */
const EXIT_GRACE_MS = 2_000;

/** Returns `code` and forces an exit after a grace period if handles keep the event loop alive. */
export function forceExit(code: number): number {
  setTimeout(() => exitImmediately(code), EXIT_GRACE_MS).unref();
  return code;
}
