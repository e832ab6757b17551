import { TimeoutError } from "../async/deadline.ts";
import { DisconnectedError, ErrorCode, RequestError } from "../protocol/errors.ts";

/** What an ExecServerError is about, as far as it is known. */
export interface ExecServerErrorDetails {
  /** A path that was asked for: a directory to start in, a program given by its path. */
  path?: string | undefined;
  argv?: readonly string[] | undefined;
  /** The wire's name of what was asked. */
  method?: string | undefined;
}

/**
 * What `Environment` rejects with: one kind of error, told apart by its `code` (`ENOENT`, `EACCES`, `TIMEOUT`,
 * `DISCONNECTED`, …). What lies below it is its `cause`.
 */
export class ExecServerError extends Error implements ExecServerErrorDetails {
  override readonly name: string = "ExecServerError";
  readonly code: string;
  /** The JSON-RPC number the server answered with; null when it was no answer. */
  readonly rpcCode: number | null;
  readonly path: string | undefined;
  readonly argv: readonly string[] | undefined;
  readonly method: string | undefined;

  constructor(message: string, code: string, details: ExecServerErrorDetails = {}, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.rpcCode = options?.cause instanceof RequestError ? options.cause.code : null;
    this.path = details.path;
    this.argv = details.argv;
    this.method = details.method;
  }
}

/** The code of anything a call rejects with; null for what is no failure of a call, such as an abort. */
export function codeOf(error: unknown): string | null {
  if (error instanceof ExecServerError) return error.code;
  if (error instanceof DisconnectedError) return "DISCONNECTED";
  if (error instanceof TimeoutError) return "TIMEOUT";
  if (!(error instanceof RequestError)) return null;
  const text = SYSTEM_TEXTS.find(([words]) => error.message.includes(words));
  if (text) return text[1];
  switch (error.code) {
    case ErrorCode.notFound:
      return "ENOENT";
    case ErrorCode.invalidRequest:
    case ErrorCode.invalidParams:
      return "EINVAL";
    case -32601:
      return "UNSUPPORTED";
    default:
      return "INTERNAL";
  }
}

/** How every server of this protocol words the errors of the system. */
const SYSTEM_TEXTS: readonly (readonly [text: string, code: string])[] = [
  ["(os error 2)", "ENOENT"],
  ["(os error 13)", "EACCES"],
  ["(os error 1)", "EPERM"],
  ["(os error 7)", "E2BIG"],
  ["(os error 8)", "ENOEXEC"],
  ["(os error 11)", "EAGAIN"],
  ["(os error 12)", "ENOMEM"],
  ["(os error 17)", "EEXIST"],
  ["(os error 20)", "ENOTDIR"],
  ["(os error 21)", "EISDIR"],
  ["(os error 24)", "EMFILE"],
  ["(os error 28)", "ENOSPC"],
];
