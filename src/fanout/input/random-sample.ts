import { createHash } from "node:crypto";
import type { NewItem } from "../job.ts";

/**
 * Yields a uniform random sample of rows, in table order. The same seed selects the same rows, so the same command
 * resumes its job. Row indexes are consecutive; item ids are those of the whole table.
 */
export async function* randomSample(
  items: AsyncIterable<NewItem>,
  size: number,
  seed: string,
): AsyncGenerator<NewItem, void, undefined> {
  const random = seededRandom(seedNumber(seed));
  const picked: NewItem[] = [];
  let seen = 0;
  for await (const item of items) {
    seen++;
    if (picked.length < size) picked.push(item);
    else {
      // Reservoir sampling: the n-th row replaces a selected row with probability size / n.
      const index = Math.floor(random() * seen);
      if (index < size) picked[index] = item;
    }
  }
  picked.sort((a, b) => a.rowIndex - b.rowIndex);
  for (const [rowIndex, item] of picked.entries()) yield { ...item, rowIndex };
}

/** Converts a seed to a number. The first digits of a SHA-256 hash are used directly; other text is hashed first. */
function seedNumber(seed: string): number {
  const hex = /^[0-9a-f]{64}$/.test(seed) ? seed : createHash("sha256").update(seed).digest("hex");
  return Number.parseInt(hex.slice(0, 8), 16);
}

/** Returns a generator of numbers from 0 to 1 (mulberry32): uniform enough for samples, not for secrets. */
function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
