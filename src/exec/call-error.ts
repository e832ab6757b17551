import { abortable } from "../async/abort.ts";
import { TimeoutError } from "../async/deadline.ts";
import { DisconnectedError, ErrorCode, ProtocolError, RequestError } from "../protocol/errors.ts";
import type { ExecServerErrorCode, ExecServerErrorDetails, SystemErrorCode } from "../protocol/exec-server-error.ts";
import { ExecServerError } from "../protocol/exec-server-error.ts";
import { pathFromUri } from "../protocol/path-uri.ts";
import { parseOsErrorNumber } from "./compat.ts";

/**
 * Makes a call whose failure is an ExecServerError with the caller's frames in its stack. An abort rejects at once
 * with the signal's reason. If the signal is already aborted, the call is not made. `check` validates the arguments
 * first, including the signal.
 */
export async function withCallErrors<T>(
  about: ExecServerErrorDetails,
  call: () => Promise<T>,
  signal?: AbortSignal,
  check?: () => void,
): Promise<T> {
  const caller = new Error("called from here");
  try {
    check?.();
    signal?.throwIfAborted();
    return await abortable(call(), signal);
  } catch (error) {
    throw toCallError(error, about, caller);
  }
}

/** Returns the details of a start, also for params that a JavaScript caller got wrong. */
export function startDetails(params: { argv: readonly string[]; cwd?: string | undefined }): ExecServerErrorDetails {
  const { argv, cwd } = Object(params);
  return {
    method: "process/start",
    argv: Array.isArray(argv) ? argv : undefined,
    cwd: typeof cwd === "string" ? toShownPath(cwd) : undefined,
  };
}

/** Returns the error that a call rejects with after it failed with `error`. */
export function toCallError(error: unknown, about: ExecServerErrorDetails, caller: Error): unknown {
  const code = errorCode(error);
  // An error with a method has been converted before, closer to its cause.
  const isConverted = error instanceof ExecServerError && error.method !== undefined;
  if (code === null || isConverted || !(error instanceof Error)) return error;
  const isResponse = error instanceof RequestError || error instanceof ExecServerError;
  const details = { ...about, rpcCode: findRpcCode(error), reason: isResponse ? error.reason : undefined };
  if (error instanceof DisconnectedError) return withCallerStack(error.during(details), caller);
  return withCallerStack(new ExecServerError(toText(error, code, about.path), code, details, { cause: error }), caller);
}

/** Returns the error code of a rejected call, or null if the error is not a call failure, such as an abort. */
export function errorCode(error: unknown): ExecServerErrorCode | null {
  if (error instanceof ExecServerError) return error.code;
  if (error instanceof TimeoutError) return "TIMEOUT";
  if (error instanceof ProtocolError) return "PROTOCOL";
  if (!(error instanceof RequestError)) return null;
  const number = parseOsErrorNumber(error.message);
  const name = number === null ? undefined : SYSTEM_CODES[number];
  if (name !== undefined) return name;
  switch (error.code) {
    case ErrorCode.notFound:
      return "ENOENT";
    case ErrorCode.invalidRequest:
    case ErrorCode.invalidParams:
      return "EINVAL";
    case ErrorCode.beingReplaced:
      return "EAGAIN";
    case ErrorCode.methodNotFound:
      return "UNSUPPORTED";
    default:
      return "INTERNAL";
  }
}

function findRpcCode(error: unknown): number | undefined {
  if (error instanceof RequestError) return error.code;
  return error instanceof ExecServerError ? (error.rpcCode ?? undefined) : undefined;
}

/** Replaces the stack: a response's stack ends in the event loop, and the user needs the line of the call. */
export function withCallerStack<E extends Error>(error: E, caller: Error): E {
  // The first line is the message, the second the frame in this file.
  const frames = caller.stack?.split("\n").slice(2).join("\n") ?? "";
  error.stack = `${error.name}: ${error.message}\n${frames}`;
  return error;
}

/** Adds the path to a system error, which does not name it. */
function toText({ message }: Error, code: string, path: string | undefined): string {
  if (path === undefined || parseOsErrorNumber(message) === null) return message;
  const shown = toShownPath(path);
  return code === "ENOENT" ? `no such file or directory: ${shown}` : `${message}: ${shown}`;
}

/** Returns the native path of a `file:` URI, and any other text unchanged. */
function toShownPath(path: string): string {
  try {
    return /^file:/i.test(path) ? pathFromUri(path) : path;
  } catch {
    return path;
  }
}

/** Linux errno values: the wire carries these on every client platform. */
const SYSTEM_CODES: Readonly<Record<number, SystemErrorCode>> = {
  1: "EPERM",
  2: "ENOENT",
  3: "ESRCH",
  4: "EINTR",
  5: "EIO",
  7: "E2BIG",
  8: "ENOEXEC",
  9: "EBADF",
  11: "EAGAIN",
  12: "ENOMEM",
  13: "EACCES",
  16: "EBUSY",
  17: "EEXIST",
  18: "EXDEV",
  20: "ENOTDIR",
  21: "EISDIR",
  22: "EINVAL",
  23: "ENFILE",
  24: "EMFILE",
  26: "ETXTBSY",
  27: "EFBIG",
  28: "ENOSPC",
  30: "EROFS",
  32: "EPIPE",
  36: "ENAMETOOLONG",
  38: "ENOSYS",
  39: "ENOTEMPTY",
  40: "ELOOP",
  95: "ENOTSUP",
  122: "EDQUOT",
};
