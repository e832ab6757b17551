import { isObject } from "./type-guards.ts";

/** Returns the string `code` of an error, for example `ENOENT` or `ERR_PARSE_ARGS_UNKNOWN_OPTION`, or null. */
export function getErrorCode(error: unknown): string | null {
  return isObject(error) && typeof error.code === "string" ? error.code : null;
}

/** Reports whether `error` has one of these codes. */
export function hasErrorCode(error: unknown, ...codes: readonly string[]): boolean {
  const code = getErrorCode(error);
  return code !== null && codes.includes(code);
}

/** Returns null for the error of a missing file; throws any other error. For `catch`. */
export function nullIfMissing(error: unknown): null {
  if (hasErrorCode(error, "ENOENT")) return null;
  throw error;
}
