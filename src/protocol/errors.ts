/**
 * Errors of the wire. Expected outcomes are values and never errors; what a client's calls reject with is the
 * ExecServerError.
 */

import { ExecServerError, type ExecServerErrorDetails } from "./exec-server-error.ts";

export const ErrorCode = {
  invalidRequest: -32600,
  invalidParams: -32602,
  internal: -32603,
  notFound: -32004,
  sessionAttached: -32010,
  /** Nothing was done: the next server, on the next connection, takes the request. */
  beingReplaced: -32011,
} as const;

/** The words of a close reason, or of a refused resume, for a session that another connection has taken over. */
export const TAKEN_OVER = "was taken over by another connection";

export function isTakenOver(text: string | null): boolean {
  return text?.includes(TAKEN_OVER) ?? false;
}

/** Answers one request; the connection lives on. */
export class RequestError extends Error {
  override readonly name = "RequestError";
  readonly code: number;

  constructor(code: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

export const invalidRequest = (message: string, options?: ErrorOptions) =>
  new RequestError(ErrorCode.invalidRequest, message, options);
export const invalidParams = (message: string, options?: ErrorOptions) =>
  new RequestError(ErrorCode.invalidParams, message, options);
export const internalError = (message: string, options?: ErrorOptions) =>
  new RequestError(ErrorCode.internal, message, options);
export const notFound = (message: string, options?: ErrorOptions) =>
  new RequestError(ErrorCode.notFound, message, options);

/** The peer broke the protocol: the connection is closed, its session only detached. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}

/** The text every failure of a lost connection begins with; the seeds' tests look for it. */
export const DISCONNECTED_PREFIX = "exec-server transport disconnected";

/** The connection is gone: rejects every pending and later call at once. */
export class DisconnectedError extends ExecServerError {
  override readonly name = "DisconnectedError";
  readonly #reason: string | undefined;

  constructor(reason?: string, options?: ErrorOptions, details?: ExecServerErrorDetails) {
    super(
      reason ? `${DISCONNECTED_PREFIX}: ${reason}` : DISCONNECTED_PREFIX,
      "DISCONNECTED",
      details,
      options,
    );
    this.#reason = reason;
  }

  /** The same for one of the calls that it rejects. */
  during(details: ExecServerErrorDetails): DisconnectedError {
    return new DisconnectedError(this.#reason, { cause: this }, details);
  }
}

export interface WireError {
  code: number;
  message: string;
}

/** Turns anything thrown into an answer. One of neither family is a bug: answered as internal, its text not leaked. */
export function toWireError(error: unknown, onBug: (error: unknown) => void): WireError {
  if (error instanceof RequestError) return { code: error.code, message: error.message };
  if (error instanceof ExecServerError)
    return { code: error.rpcCode ?? ErrorCode.internal, message: error.message };
  onBug(error);
  return { code: ErrorCode.internal, message: "internal error" };
}

/** Turns an error answer back into an error. */
export function fromWireError(error: WireError): RequestError {
  return new RequestError(error.code, error.message);
}
