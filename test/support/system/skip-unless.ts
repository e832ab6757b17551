/**
 * Returns the value of a test's `skip`: false if `isAvailable`, otherwise the reason. Throws in CI, where every
 * required package must be installed.
 */
export function skipUnless(isAvailable: boolean, reason: string): string | false {
  if (isAvailable) return false;
  if (process.env.CI) throw new Error(`CI must not skip this: ${reason}`);
  return `SKIPPED: ${reason}`;
}
