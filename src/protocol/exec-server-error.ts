/** Context of an ExecServerError. Unknown fields are absent. */
export interface ExecServerErrorDetails {
  /** The requested file or directory, or the executable if the command names it by its path. */
  path?: string | undefined;
  argv?: readonly string[] | undefined;
  /** JSON-RPC method. */
  method?: string | undefined;
  /** JSON-RPC error code of the response. */
  rpcCode?: number | null | undefined;
}

/**
 * The error of every rejected call of a client, a process or an environment. `code` identifies the failure:
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
 * - `INTERNAL`: a bug or an unexpected failure
 *
 * `cause` is the underlying error.
 */
export class ExecServerError extends Error implements ExecServerErrorDetails {
  override readonly name: string = "ExecServerError";
  readonly code: string;
  /** JSON-RPC error code of the response; null if the error has another origin. */
  readonly rpcCode: number | null;
  readonly path: string | undefined;
  readonly argv: readonly string[] | undefined;
  readonly method: string | undefined;

  constructor(message: string, code: string, details: ExecServerErrorDetails = {}, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.rpcCode = details.rpcCode ?? null;
    this.path = details.path;
    this.argv = details.argv;
    this.method = details.method;
  }
}
