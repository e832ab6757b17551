/** Reads the code of an error from the output of npm, which has no other form of it. No other module reads this text. */

/** Returns the code of the first error on npm's stderr, such as `E404`, or null. */
export function parseNpmErrorCode(stderr: string): string | null {
  return /^npm (?:error|ERR!) code (\S+)/m.exec(stderr)?.[1] ?? null;
}
