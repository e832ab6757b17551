/**
 * Recognizes errors of a server. Extended clients get a machine-readable reason from procwire servers. Codex servers send
 * none, so their text is the only criterion. No other module decides by the text of a server's error.
 */

import {
  ACCESS_REVOKED_MESSAGE,
  DISCONNECTED_PREFIX,
  DisconnectedError,
  ErrorCode,
  RequestError,
  SESSION_TAKEN_OVER_MESSAGE,
  SHARE_CLOSE_REASONS,
} from "../protocol/errors.ts";
import { type ErrorReason, ExecServerError } from "../protocol/exec-server-error.ts";

/** Reports whether the server rejected a start because its process id is in use. */
export function isProcessExists(error: unknown, processId: string): boolean {
  const text = `process ${processId} already exists`;
  return hasReason(error, "processExists", () => isInvalidRequest(error) && error.message === text);
}

/** Reports whether a Codex server rejected a call because the process is still starting. A procwire server waits. */
export function isProcessStarting(error: unknown): boolean {
  return isInvalidRequest(error) && error.message.endsWith(" is starting");
}

/** Reports whether the server does not know the process. */
export function isUnknownProcess(error: unknown, processId: string): boolean {
  return hasReason(error, "unknownProcess", (message) => message === `unknown process id ${processId}`);
}

/** Reports whether the server does not know the handle of a process. Codex servers have no handles. */
export function isUnknownHandle(error: unknown): boolean {
  return hasReason(error, "unknownHandle", () => false);
}

/** Reports whether the server does not know the method. Codex servers return an invalid request instead of -32601. */
export function isUnknownMethod(error: RequestError): boolean {
  if (error.code === ErrorCode.methodNotFound) return true;
  const matchesText = (message: string) => isInvalidRequest(error) && message.startsWith("unknown method:");
  return hasReason(error, "unknownMethod", matchesText);
}

/** Reports whether the server does not know the file handle, because the handle belongs to an earlier connection. */
export function isUnknownFileHandle(error: Error): boolean {
  return hasReason(error, "unknownFileHandle", (message) => message.startsWith("unknown file handle"));
}

/** Reports whether a rejected resume means that another connection has taken over the session. */
export function isTakeoverError(error: RequestError): boolean {
  return hasReason(error, "sessionTakenOver", () => false);
}

/** Reports whether a close reason, which is only a text, means that another connection has taken over the session. */
export function isTakeoverClose(reason: string | null): boolean {
  return reason?.includes(SESSION_TAKEN_OVER_MESSAGE) ?? false;
}

/** Reports whether a close reason means that the share link or the access of this client has ended. */
export function isAccessEnd(reason: string | null): boolean {
  return reason === ACCESS_REVOKED_MESSAGE || Object.values<string | null>(SHARE_CLOSE_REASONS).includes(reason);
}

/** Returns the errno in the text of a system error, or null for other errors. */
export function parseOsErrorNumber(message: string): number | null {
  const [, number] = OS_ERROR.exec(message) ?? [];
  return number === undefined ? null : Number(number);
}

/** Suffix of a system error in the texts of Codex and procwire servers. */
const OS_ERROR = /\(os error (\d+)\)/;

/** Returns why an executable could not be started, or null for other failures. */
export function parseStartFailure(message: string): "notFound" | "notExecutable" | null {
  if (/No such file or directory|does not exist|No viable candidates/.test(message)) return "notFound";
  return /Permission denied|Exec format error|not executable/.test(message) ? "notExecutable" : null;
}

/** Converts the `failure` text of `process/read` and `process/failed` to an error. */
export function parseProcessFailure(message: string): ExecServerError {
  if (!message.startsWith(DISCONNECTED_PREFIX)) return new ExecServerError(message, "FAILED");
  return new DisconnectedError(message.slice(DISCONNECTED_PREFIX.length).replace(/^: /, ""));
}

/** Compares the reason of an error, or the text of an error without a reason. */
function hasReason(error: unknown, reason: ErrorReason, matchesText: (message: string) => boolean): boolean {
  if (!(error instanceof RequestError || error instanceof ExecServerError)) return false;
  return error.reason === undefined ? matchesText(error.message) : error.reason === reason;
}

function isInvalidRequest(error: unknown): error is RequestError {
  return error instanceof RequestError && error.code === ErrorCode.invalidRequest;
}
