import type { Clock, Timer } from "../../src/async/clock.ts";

interface Entry {
  readonly at: number;
  readonly order: number;
  readonly owner: string;
  fn: (() => void) | null;
}

/**
 * The clock of a simulation. Every event is a timer; timers fire one by one in order of time, then of creation. Each
 * component has a separate view, so that leftover timers can be attributed at the end.
 */
export class SimClock {
  readonly #heap: Entry[] = [];
  readonly #pending = new Map<string, number>();
  #now = 1_700_000_000_000;
  #order = 0;

  get now(): number {
    return this.#now;
  }

  view(owner: string): Clock {
    const now = () => this.#now;
    return { now, monotonic: now, after: (ms, fn) => this.after(ms, fn, owner) };
  }

  after(ms: number, fn: () => void, owner = "simulation"): Timer {
    const entry: Entry = { at: this.#now + Math.max(0, ms), order: this.#order++, owner, fn };
    this.#count(owner, 1);
    this.#push(entry);
    return {
      cancel: () => {
        if (!entry.fn) return;
        entry.fn = null;
        this.#count(owner, -1);
      },
    };
  }

  pending(owner: string): number {
    return this.#pending.get(owner) ?? 0;
  }

  /** Fires the next timer. Returns false if there is none before `until`. */
  step(until: number): boolean {
    for (;;) {
      const next = this.#heap[0];
      if (!next || next.at > until) return false;
      this.#pop();
      const { fn } = next;
      if (!fn) continue;
      next.fn = null;
      this.#count(next.owner, -1);
      this.#now = Math.max(this.#now, next.at);
      fn();
      return true;
    }
  }

  #count(owner: string, by: number): void {
    this.#pending.set(owner, this.pending(owner) + by);
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let at = heap.push(entry) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above];
      if (!parent || !isBefore(entry, parent)) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = entry;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (!last || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const below = 2 * at + 1;
      const left = heap[below];
      if (!left) break;
      const right = heap[below + 1];
      const isRight = right !== undefined && isBefore(right, left);
      const smaller = isRight ? right : left;
      if (!isBefore(smaller, last)) break;
      heap[at] = smaller;
      at = isRight ? below + 1 : below;
    }
    heap[at] = last;
  }
}

function isBefore(a: Entry, b: Entry): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
