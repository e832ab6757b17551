import { exitNow } from "../native/exit-now.ts";

/** What is still open after the end may hold the program no longer than this. */
const EXIT_GRACE_MS = 2_000;

/** The command is done: the program ends by itself once nothing is left to do, or after a while all the same. */
export function leave(code: number): number {
  setTimeout(() => exitNow(code), EXIT_GRACE_MS).unref();
  return code;
}
