import { shareInstances } from "../base/shared-class.ts";

/**
 * Machine-readable causes of rejected requests, in `error.data.reason` of responses to extended clients. Each of
 * them changes the behavior of a client. All other errors have only a text.
 */
export const ERROR_REASONS = [
  ...["unknownMethod", "processExists", "nameInUse", "unknownProcess", "unknownHandle", "unknownFileHandle"],
  ...["sessionTakenOver", "targetNotAllowed", "connectionRefused", "networkUnreachable", "hostUnreachable"],
] as const;
export type ErrorReason = (typeof ERROR_REASONS)[number];

/** Names of system errors, including those of name resolution. */
const SYSTEM_ERROR_CODES = [
  ...["E2BIG", "EACCES", "EADDRINUSE", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EAGAIN", "EAI_AGAIN", "EAI_FAIL"],
  ...["EAI_NODATA", "EAI_NONAME", "EALREADY", "EBADF", "EBADMSG", "EBUSY", "ECANCELED", "ECHILD"],
  ...["ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EDEADLK", "EDESTADDRREQ", "EDOM", "EDQUOT", "EEXIST"],
  ...["EFAULT", "EFBIG", "EHOSTDOWN", "EHOSTUNREACH", "EILSEQ", "EINPROGRESS", "EINTR", "EINVAL"],
  ...["EIO", "EISCONN", "EISDIR", "ELOOP", "EMFILE", "EMLINK", "EMSGSIZE", "ENAMETOOLONG"],
  ...["ENETDOWN", "ENETRESET", "ENETUNREACH", "ENFILE", "ENOBUFS", "ENODATA", "ENODEV", "ENOENT"],
  ...["ENOEXEC", "ENOLCK", "ENOMEM", "ENOPROTOOPT", "ENOSPC", "ENOSYS", "ENOTCONN", "ENOTDIR"],
  ...["ENOTEMPTY", "ENOTFOUND", "ENOTSOCK", "ENOTSUP", "ENOTTY", "ENXIO", "EOPNOTSUPP", "EOVERFLOW"],
  ...["EPERM", "EPIPE", "EPROTO", "EPROTONOSUPPORT", "EPROTOTYPE", "ERANGE", "EROFS", "ESPIPE"],
  ...["ESRCH", "ESTALE", "ETIMEDOUT", "ETXTBSY", "EWOULDBLOCK", "EXDEV"],
] as const;

/** Name of a system error, for example `ENOENT` or `EAI_AGAIN`. */
export type SystemErrorCode = (typeof SYSTEM_ERROR_CODES)[number];

const knownSystemErrorCodes: ReadonlySet<string> = new Set(SYSTEM_ERROR_CODES);

export function isSystemErrorCode(code: string): code is SystemErrorCode {
  return knownSystemErrorCodes.has(code);
}

/**
 * Identifies the failure of a rejected call:
 *
 * - `ENOENT`, `EACCES` and so on: the name of a system error
 * - `TIMEOUT`: the deadline passed
 * - `DISCONNECTED`: the connection was lost
 * - `UNSUPPORTED`: the server does not support the method, or the local host has no handles
 * - `EINVAL`: an option or argument is invalid, or the server rejected the request
 * - `FAILED`: the server lost track of the process
 * - `GAP`: the requested output was evicted
 * - `ENDED`: the process ended before the awaited condition
 * - `EXIT`, `SIGNAL`: see CommandError
 * - `PROTOCOL`: the peer violated the protocol
 * - `CHANGED`: a file changed while it was copied
 * - `CONNECT`: the connection could not be established
 * - `REFUSED`: the server rejected the connection with an HTTP status
 * - `PIPE`, `MISSING`: a command such as ssh failed; the remote host has no procwire
 * - `INTERNAL`: a bug or an unexpected failure
 */
export type ExecServerErrorCode =
  | SystemErrorCode
  | ("TIMEOUT" | "DISCONNECTED" | "UNSUPPORTED" | "FAILED" | "GAP" | "ENDED" | "EXIT" | "SIGNAL" | "PROTOCOL")
  | ("CHANGED" | "CONNECT" | "REFUSED" | "PIPE" | "MISSING" | "INTERNAL");

/** Context of an ExecServerError. Unknown fields are absent. */
export interface ExecServerErrorDetails {
  /** The requested file or directory, or the executable if the command names it by its path. */
  path?: string | undefined;
  argv?: readonly string[] | undefined;
  /** Working directory of the command, as the caller named it. */
  cwd?: string | undefined;
  /** JSON-RPC method. */
  method?: string | undefined;
  /** JSON-RPC error code of the response. */
  rpcCode?: number | undefined;
  /** Machine-readable cause in the response. */
  reason?: ErrorReason | undefined;
}

/** The error of every rejected call of a client, a process or an environment. `cause` is the underlying error. */
export class ExecServerError extends Error {
  static {
    shareInstances(ExecServerError, "procwire.ExecServerError");
  }

  override readonly name: string = "ExecServerError";
  readonly code: ExecServerErrorCode;
  /** JSON-RPC error code of the response; null if the error has another origin. */
  readonly rpcCode: number | null;
  readonly reason: ErrorReason | undefined;
  readonly path: string | undefined;
  readonly argv: readonly string[] | undefined;
  /** Program of the command that failed: the first element of `argv`. */
  readonly program: string | undefined;
  /** Working directory of the command that failed; undefined if the caller named none. */
  readonly cwd: string | undefined;
  readonly method: string | undefined;

  constructor(
    message: string,
    code: ExecServerErrorCode,
    details: ExecServerErrorDetails = {},
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.code = code;
    this.rpcCode = details.rpcCode ?? null;
    this.reason = details.reason;
    this.path = details.path;
    this.argv = details.argv;
    this.program = details.argv?.[0];
    this.cwd = details.cwd;
    this.method = details.method;
  }
}
