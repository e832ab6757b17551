import type { Clock, Timer } from "../../async/clock.ts";
import { VIEWER_BURST, VIEWER_COST_PER_MS, VIEWER_INTERVAL_MS, VIEWER_MESSAGE_COST } from "../server-config.ts";

/** A viewer that sends in slices. */
export interface ScheduledViewer {
  /** Sends the next slice. Returns its size, and whether there may be more. */
  sendSlice(): { messages: number; bytes: number; isMore: boolean };
}

/**
 * Schedules the viewers of a server. All viewers together have a rate limit, whatever their number and the speed of
 * their processes. Output beyond it waits, and becomes a gap if it is evicted meanwhile. Viewers never send in the
 * tick in which output arrives, so the owner and the driver get it first.
 */
export class ViewerScheduler {
  readonly #clock: Clock;
  readonly #waiting = new Set<ScheduledViewer>();
  #timer: Timer | null = null;
  #credit = VIEWER_BURST;
  #countedAtMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#countedAtMs = clock.monotonic();
  }

  /** Schedules a viewer that has events to send. */
  enqueue(viewer: ScheduledViewer): void {
    this.#waiting.add(viewer);
    this.#timer ??= this.#after(0);
  }

  remove(viewer: ScheduledViewer): void {
    this.#waiting.delete(viewer);
    if (this.#waiting.size > 0) return;
    this.#timer?.cancel();
    this.#timer = null;
  }

  #run(): void {
    this.#timer = null;
    this.#refillCredit();
    for (const viewer of this.#waiting) {
      if (this.#credit <= 0) break;
      this.#waiting.delete(viewer);
      const { messages, bytes, isMore } = viewer.sendSlice();
      this.#credit -= messages * VIEWER_MESSAGE_COST + bytes;
      // At the end of the queue.
      if (isMore) this.#waiting.add(viewer);
    }
    if (this.#waiting.size > 0) this.#timer ??= this.#after(VIEWER_INTERVAL_MS);
  }

  #refillCredit(): void {
    const nowMs = this.#clock.monotonic();
    const earned = (nowMs - this.#countedAtMs) * VIEWER_COST_PER_MS;
    this.#credit = Math.min(VIEWER_BURST, this.#credit + earned);
    this.#countedAtMs = nowMs;
  }

  #after(ms: number): Timer {
    return this.#clock.after(ms, () => this.#run(), { keepAlive: false });
  }
}
