const IS_COMPLETE = process.env.PROCWIRE_RACES === "1";

/**
 * Returns how often a test repeats a race: `count` times in `npm run test:races`, and a tenth of that, at least 3 times, in the
 * other suites, which have to stay fast.
 */
export function repetitions(count: number): number {
  return IS_COMPLETE ? count : Math.max(3, Math.ceil(count / 10));
}

/** Returns all cases in `npm run test:races`, and the few that are given in the other suites. */
export function selectCases<T>(all: readonly T[], few: readonly T[]): readonly T[] {
  return IS_COMPLETE ? all : few;
}
