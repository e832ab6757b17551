import type { SimClock } from "./sim-clock.ts";

/** Maximum number of retained lines. */
const MAX_LINES = 400;

/** Trace of a run. The digest covers all lines; only the last ones are retained. */
export class Trace {
  readonly #clock: SimClock;
  readonly #startedAt: number;
  readonly #lines: string[] = [];
  #digest = 0x811c9dc5;
  #count = 0;

  constructor(clock: SimClock) {
    this.#clock = clock;
    this.#startedAt = clock.now;
  }

  add(line: string): void {
    const full = `${String(this.#clock.now - this.#startedAt).padStart(7)} ${line}`;
    for (let at = 0; at < full.length; at++)
      this.#digest = Math.imul(this.#digest ^ full.charCodeAt(at), 0x01000193) >>> 0;
    this.#count++;
    this.#lines.push(full);
    if (this.#lines.length > 2 * MAX_LINES) this.#lines.splice(0, MAX_LINES);
  }

  /** Digest of all events, their order and their times. */
  get digest(): string {
    return `${this.#count}-${this.#digest.toString(16)}`;
  }

  last(lines: number): string[] {
    return this.#lines.slice(-lines);
  }
}
