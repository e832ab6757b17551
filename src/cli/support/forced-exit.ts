import { exitImmediately } from "../../native/exit-now.ts";

/** Maximum time that open handles may keep the process alive. */
const EXIT_GRACE_MS = 2_000;

/**
 * Exits as soon as nothing keeps the event loop alive. Node's own exit would first free the JavaScript heap, which takes
 * longer than the kernel needs.
 */
export function exitWhenIdle(): void {
  process.off("beforeExit", exitWithCode).once("beforeExit", exitWithCode);
}

function exitWithCode(): void {
  exitImmediately(Number(process.exitCode ?? 0));
}

/** Returns `code` and forces an exit after a grace period if handles keep the event loop alive. */
export function forceExit(code: number): number {
  setTimeout(() => exitImmediately(code), EXIT_GRACE_MS).unref();
  return code;
}
