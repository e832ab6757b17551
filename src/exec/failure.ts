import { DISCONNECTED_PREFIX, DisconnectedError } from "../protocol/errors.ts";

/** The error that the message of a `failed` event stands for. */
export function failureError(message: string): Error {
  if (!message.startsWith(DISCONNECTED_PREFIX)) return new Error(message);
  return new DisconnectedError(message.slice(DISCONNECTED_PREFIX.length).replace(/^: /, ""));
}
