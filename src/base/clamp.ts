/** Returns the number in the range that is closest to `value`; `min` if the range is empty. */
export function clamp(value: number, min: number, max: number): number {
  return Math.max(min, Math.min(max, value));
}
