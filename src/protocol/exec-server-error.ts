/**
 * Machine-readable causes of rejected requests, in `error.data.reason` of responses to extended clients. Each of
 * them changes the behavior of a client. All other errors have only a text.
 */
export const ERROR_REASONS = [
  "unknownMethod",
  "processExists",
  "unknownProcess",
  "unknownHandle",
  "unknownFileHandle",
  "sessionTakenOver",
] as const;
export type ErrorReason = (typeof ERROR_REASONS)[number];

/** Name of a system error, for example `ENOENT` or `EAI_AGAIN`. */
export type SystemErrorCode = `E${Uppercase<string>}`;

export function isSystemErrorCode(code: string): code is SystemErrorCode {
  return /^E[A-Z0-9_]+$/.test(code);
}

/**
 * Identifies the failure of a rejected call:
 *
 * - `ENOENT`, `EACCES` and so on: the name of a system error
 * - `TIMEOUT`: the deadline passed
 * - `DISCONNECTED`: the connection was lost
 * - `UNSUPPORTED`: the server does not support the method
 * - `EINVAL`: the server rejected the request
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
  /** JSON-RPC method. */
  method?: string | undefined;
  /** JSON-RPC error code of the response. */
  rpcCode?: number | undefined;
  /** Machine-readable cause in the response. */
  reason?: ErrorReason | undefined;
}

/** The error of every rejected call of a client, a process or an environment. `cause` is the underlying error. */
export class ExecServerError extends Error {
  override readonly name: string = "ExecServerError";
  readonly code: ExecServerErrorCode;
  /** JSON-RPC error code of the response; null if the error has another origin. */
  readonly rpcCode: number | null;
  readonly reason: ErrorReason | undefined;
  readonly path: string | undefined;
  readonly argv: readonly string[] | undefined;
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
    this.method = details.method;
  }
}
