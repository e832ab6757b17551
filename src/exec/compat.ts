/**
 * Recognizes errors of a server by their text. Codex servers send no machine-readable reason, so the text is the only
 * criterion. No other module decides by the text of an error.
 */

import {
  DISCONNECTED_PREFIX,
  DisconnectedError,
  ErrorCode,
  RequestError,
  SESSION_TAKEN_OVER_MESSAGE,
} from "../protocol/errors.ts";
import { ExecServerError } from "../protocol/exec-server-error.ts";

/** Reports whether the server rejected a start because its process id is in use. */
export function isProcessExists(error: unknown, processId: string): boolean {
  return isInvalidRequest(error) && error.message === `process ${processId} already exists`;
}

/** Reports whether the server rejected a call because the process is still starting. */
export function isProcessStarting(error: unknown): boolean {
  return isInvalidRequest(error) && error.message.endsWith(" is starting");
}

/** Reports whether the server does not know the process. A server that replaced another one appends its generation. */
export function isUnknownProcess(error: unknown, processId: string): boolean {
  if (!(error instanceof RequestError)) return false;
  const text = `unknown process id ${processId}`;
  return error.message === text || error.message.startsWith(`${text}; `);
}

/** Reports whether the server does not know the method. Codex servers return an invalid request instead of -32601. */
export function isUnknownMethod(error: RequestError): boolean {
  return (
    error.code === ErrorCode.methodNotFound ||
    (isInvalidRequest(error) && error.message.startsWith("unknown method:"))
  );
}

/** Reports whether the server does not know the file handle, because the handle belongs to an earlier connection. */
export function isUnknownFileHandle(error: Error): boolean {
  return error.message.startsWith("unknown file handle");
}

/** Reports whether a close reason or a rejected resume means that another connection has taken over the session. */
export function isSessionTakenOver(text: string | null): boolean {
  return text?.includes(SESSION_TAKEN_OVER_MESSAGE) ?? false;
}

/** Returns the errno in the text of a system error, or null for other errors. */
export function parseOsErrorNumber(message: string): number | null {
  const [, number] = OS_ERROR.exec(message) ?? [];
  return number === undefined ? null : Number(number);
}

/** Suffix of a system error in the texts of Codex and procwire servers. */
const OS_ERROR = /\(os error (\d+)\)/;

/** Converts the `failure` text of `process/read` and `process/failed` to an error. */
export function parseProcessFailure(message: string): ExecServerError {
  if (!message.startsWith(DISCONNECTED_PREFIX)) return new ExecServerError(message, "FAILED");
  return new DisconnectedError(message.slice(DISCONNECTED_PREFIX.length).replace(/^: /, ""));
}

function isInvalidRequest(error: unknown): error is RequestError {
  return error instanceof RequestError && error.code === ErrorCode.invalidRequest;
}
