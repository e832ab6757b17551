import type { Timer } from "../../src/async/clock.ts";
import { ManualClock } from "./manual-clock.ts";

/** A manual clock that counts the timers which keep a program alive. */
export class KeepAliveClock extends ManualClock {
  /** Number of timers created without `keepAlive: false`. */
  keepAliveTimers = 0;

  override after(ms: number, fn: () => void, options?: { keepAlive?: boolean }): Timer {
    if (options?.keepAlive !== false) this.keepAliveTimers++;
    return super.after(ms, fn);
  }
}
