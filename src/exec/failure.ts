import { DISCONNECTED_PREFIX, DisconnectedError } from "../protocol/errors.ts";
import { ExecServerError } from "../protocol/exec-server-error.ts";

/** The error that the message of a `failed` event stands for. */
export function failureError(message: string): ExecServerError {
  if (!message.startsWith(DISCONNECTED_PREFIX)) return new ExecServerError(message, "FAILED");
  return new DisconnectedError(message.slice(DISCONNECTED_PREFIX.length).replace(/^: /, ""));
}
