/**
 * For a test's `skip`: false when what the test needs is there, else the reason it is skipped. In CI nothing may be
 * skipped for want of a package, so there a missing one is an error.
 */
export function skipUnless(isThere: boolean, reason: string): string | false {
  if (isThere) return false;
  if (process.env.CI) throw new Error(`CI must not skip this: ${reason}`);
  return `SKIPPED: ${reason}`;
}
