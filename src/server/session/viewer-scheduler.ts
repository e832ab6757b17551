import type { Clock, Timer } from "../../async/clock.ts";
import { VIEWER_BURST, VIEWER_COST_PER_MS, VIEWER_MESSAGE_COST, VIEWER_TURN_MS } from "../server-config.ts";

/** Something that is told to viewers in turns. */
export interface Viewer {
  /** Tells a part of what there is; returns what that was, and whether there may be more. */
  step(): { messages: number; bytes: number; isMore: boolean };
}

/**
 * Who is told next among all viewers of a server, and how much. Viewers together may use a share of its time, whatever
 * their number and however fast the processes are that they watch: what is beyond it waits, and is a gap for those whose
 * output is evicted meanwhile. Never in the turn in which the output came: the owner and the driver are told first.
 */
export class ViewerTurns {
  readonly #clock: Clock;
  readonly #waiting = new Set<Viewer>();
  #timer: Timer | null = null;
  #credit = VIEWER_BURST;
  #countedAtMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#countedAtMs = clock.monotonic();
  }

  /** There is something to tell. */
  wants(viewer: Viewer): void {
    this.#waiting.add(viewer);
    this.#timer ??= this.#after(0);
  }

  leaves(viewer: Viewer): void {
    this.#waiting.delete(viewer);
    if (this.#waiting.size > 0) return;
    this.#timer?.cancel();
    this.#timer = null;
  }

  #run(): void {
    this.#timer = null;
    this.#earn();
    for (const viewer of this.#waiting) {
      if (this.#credit <= 0) break;
      this.#waiting.delete(viewer);
      const { messages, bytes, isMore } = viewer.step();
      this.#credit -= messages * VIEWER_MESSAGE_COST + bytes;
      // Behind all others that wait.
      if (isMore) this.#waiting.add(viewer);
    }
    if (this.#waiting.size > 0) this.#timer ??= this.#after(VIEWER_TURN_MS);
  }

  #earn(): void {
    const nowMs = this.#clock.monotonic();
    const earned = (nowMs - this.#countedAtMs) * VIEWER_COST_PER_MS;
    this.#credit = Math.min(VIEWER_BURST, this.#credit + earned);
    this.#countedAtMs = nowMs;
  }

  #after(ms: number): Timer {
    return this.#clock.after(ms, () => this.#run(), { keepAlive: false });
  }
}
