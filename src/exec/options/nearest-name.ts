import { editDistance } from "../../base/text/edit-distance.ts";

/** Minimum length of a name that counts as an abbreviation of another one. */
const MIN_PREFIX_LENGTH = 3;

/** Returns the known name that the caller probably meant, or null if none is similar. */
export function findNearestName(name: string, known: readonly string[]): string | null {
  const lower = name.toLowerCase();
  let nearest: string | null = null;
  let smallest = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const other = candidate.toLowerCase();
    const distance = isAbbreviation(lower, other) ? 1 : editDistance(lower, other);
    if (distance >= smallest) continue;
    smallest = distance;
    nearest = candidate;
  }
  return nearest;
}

function isAbbreviation(one: string, other: string): boolean {
  const [short, long] = one.length <= other.length ? [one, other] : [other, one];
  return short.length >= MIN_PREFIX_LENGTH && (long.startsWith(short) || long.endsWith(short));
}
