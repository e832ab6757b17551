/** A value over time: seconds since the epoch, and the value. Null draws a gap. */
export type ChartPoint = readonly [atSeconds: number, value: number | null];

/** Minimum width of the time axis. */
const MIN_SECONDS = 60;

/** Returns the range of the time axis: from the first sample to the last, at least a minute. */
export function chartTimeRange(times: ArrayLike<number>, nowSeconds: number): [from: number, to: number] {
  const first = times[0] ?? nowSeconds;
  return [first, Math.max(first + MIN_SECONDS, times[times.length - 1] ?? 0)];
}
