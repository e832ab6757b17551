/** Maximum items per slice. A slice takes about a millisecond. */
const SLICE_ITEMS = 2_048;

/** Returns to the event loop. Resolves in its next tick. */
export function waitForTick(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

/** Counts items, so that a long loop returns to the event loop after each slice. */
export class SliceCounter {
  #items = 0;

  /** Counts an item. Returns true if the slice is complete and `next` must be awaited. */
  isOver(): boolean {
    return ++this.#items > SLICE_ITEMS;
  }

  /** Returns to the event loop and starts the next slice with the counted item. */
  next(): Promise<void> {
    this.#items = 1;
    return waitForTick();
  }
}

/** Maps a list of any length without blocking the event loop. */
export async function mapInSlices<T, R>(items: readonly T[], map: (item: T) => R): Promise<R[]> {
  const slices = new SliceCounter();
  const mapped: R[] = [];
  for (const item of items) {
    if (slices.isOver()) await slices.next();
    mapped.push(map(item));
  }
  return mapped;
}
