import type { ProcessTag } from "../../../src/local/tree/process-table.ts";

/** Converts the tag of a fake process, where 0 means untagged. */
export function toTreeTag(tag: number): number | null {
  return tag === 0 ? null : tag;
}

/** Converts the tag of a fake process: 0 if it is untagged, negative if it has tampered with the tag. */
export function toProcessTag(tag: number): ProcessTag | null {
  return tag === 0 ? null : { tag: Math.abs(tag), isTampered: tag < 0 };
}
