/** Reads the error code in the output of npm, because npm reports it only as text. No other module reads this text. */

/** Returns the code of the first error on npm's stderr, such as `E404`, or null. */
export function parseNpmErrorCode(stderr: string): string | null {
  return /^npm (?:error|ERR!) code (\S+)/m.exec(stderr)?.[1] ?? null;
}
