/** Returns the message of any thrown value. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Returns any thrown value as an Error. */
export function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
