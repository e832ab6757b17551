/** What an ExecServerError is about, as far as it is known. */
export interface ExecServerErrorDetails {
  /** The file or directory that was asked for, or the program where it was given by its path. */
  path?: string | undefined;
  argv?: readonly string[] | undefined;
  /** The method's name on the wire. */
  method?: string | undefined;
  /** The JSON-RPC error code a server answered with. */
  rpcCode?: number | null | undefined;
}

/**
 * The one family of errors: what every call of a client, a handle or an environment rejects with, told apart by its
 * `code`. A system error has its name (`ENOENT`, `EACCES`, …). The others: `TIMEOUT`, `DISCONNECTED`, `UNSUPPORTED` (the
 * server does not know the method), `EINVAL` (the request was refused), `FAILED` (the process can no longer be followed),
 * `GAP` (output is no longer retained), `ENDED` (the process ended before what was waited for), `EXIT` and `SIGNAL` (see
 * CommandError), `PROTOCOL` (the peer does not speak this protocol), `CHANGED` (a file
 * became another one while it was copied), `INTERNAL`. The underlying error is its `cause`.
 */
export class ExecServerError extends Error implements ExecServerErrorDetails {
  override readonly name: string = "ExecServerError";
  readonly code: string;
  /** The JSON-RPC error code the server answered with; null when the error did not come from an answer. */
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
