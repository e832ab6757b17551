/**
 * Returns how often a test repeats a race: `count` times in `npm run test:races`, and a tenth of that, at least 3 times, in the
 * other suites, which have to stay fast.
 */
export function repetitions(count: number): number {
  return process.env.PROCWIRE_RACES === "1" ? count : Math.max(3, Math.ceil(count / 10));
}
