/** Returns the message of any thrown value. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Returns the message and the stack of any thrown value, for logs. */
export function errorStack(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** Returns any thrown value as an Error. */
export function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/**
 * Returns the message of any thrown value for a user, without the ` (os error 2)` behind system errors. The wire protocol and
 * tool results have this number, which means nothing to a user.
 */
export function userMessage(error: unknown): string {
  return errorMessage(error).replace(/ \(os error \d+\)/g, "");
}
