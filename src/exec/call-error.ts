import { abortable } from "../async/abort.ts";
import { TimeoutError } from "../async/deadline.ts";
import { DisconnectedError, ErrorCode, ProtocolError, RequestError } from "../protocol/errors.ts";
import { ExecServerError, type ExecServerErrorDetails } from "../protocol/exec-server-error.ts";

/** The code that servers of this family answer an unknown method with. */
const METHOD_NOT_FOUND = -32601;

/**
 * Makes a call whose failure is an ExecServerError with the caller's lines in its stack. An abort rejects with its reason
 * as it is, and at once; one that came before the call keeps it from being made.
 */
export async function asked<T>(
  about: ExecServerErrorDetails,
  call: () => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const caller = new Error("called from here");
  try {
    signal?.throwIfAborted();
    return await abortable(call(), signal);
  } catch (error) {
    throw callError(error, about, caller);
  }
}

/** What a call that failed with `error` rejects with. */
export function callError(error: unknown, about: ExecServerErrorDetails, caller: Error): unknown {
  const code = codeOf(error);
  // An error with a method has been converted before, closer to its cause.
  const isTold = error instanceof ExecServerError && error.method !== undefined;
  if (code === null || isTold || !(error instanceof Error)) return error;
  const details = { ...about, rpcCode: rpcCodeOf(error) };
  if (error instanceof DisconnectedError) return withCaller(error.during(details), caller);
  return withCaller(
    new ExecServerError(textOf(error, code, about.path), code, details, { cause: error }),
    caller,
  );
}

/** The code of anything a call rejects with; null for what is no failure of a call, such as an abort. */
export function codeOf(error: unknown): string | null {
  if (error instanceof ExecServerError) return error.code;
  if (error instanceof TimeoutError) return "TIMEOUT";
  if (error instanceof ProtocolError) return "PROTOCOL";
  if (!(error instanceof RequestError)) return null;
  const [, number] = OS_ERROR.exec(error.message) ?? [];
  const name = number === undefined ? undefined : SYSTEM_CODES[Number(number)];
  if (name !== undefined) return name;
  switch (error.code) {
    case ErrorCode.notFound:
      return "ENOENT";
    case ErrorCode.invalidRequest:
    case ErrorCode.invalidParams:
      return "EINVAL";
    case ErrorCode.beingReplaced:
      return "EAGAIN";
    case METHOD_NOT_FOUND:
      return "UNSUPPORTED";
    default:
      return "INTERNAL";
  }
}

function rpcCodeOf(error: unknown): number | null {
  if (error instanceof RequestError) return error.code;
  return error instanceof ExecServerError ? error.rpcCode : null;
}

/** The stack of an answer ends in the event loop; a user looks for the line of the call. */
export function withCaller<E extends Error>(error: E, caller: Error): E {
  // Its first line is the message, the second the place in this file.
  const frames = caller.stack?.split("\n").slice(2).join("\n") ?? "";
  error.stack = `${error.name}: ${error.message}\n${frames}`;
  return error;
}

/** A system error says nothing of what it is about; the caller has named a path. */
function textOf({ message }: Error, code: string, path: string | undefined): string {
  if (path === undefined || !OS_ERROR.test(message)) return message;
  return code === "ENOENT" ? `no such file or directory: ${path}` : `${message}: ${path}`;
}

/** How every server of this protocol ends the text of a system error. */
const OS_ERROR = /\(os error (\d+)\)/;

/** Linux's numbers, which are what the wire carries whatever the client runs on. */
const SYSTEM_CODES: Readonly<Record<number, string>> = {
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
