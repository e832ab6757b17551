/** JSON-RPC errors. Expected outcomes are values, not errors. Calls of the client library reject with ExecServerError. */

import { shareInstances } from "../base/shared-class.ts";
import { isObject } from "../base/type-guards.ts";
import { ERROR_REASONS, type ErrorReason, ExecServerError, type ExecServerErrorDetails } from "./exec-server-error.ts";

export const ErrorCode = {
  invalidRequest: -32600,
  /** Sent by other servers; Codex and procwire reject unknown methods with `invalidRequest`. */
  methodNotFound: -32601,
  invalidParams: -32602,
  internal: -32603,
  notFound: -32004,
  sessionAttached: -32010,
  /** The server did not execute the request, because a new server replaces it. Resend on the next connection. */
  beingReplaced: -32011,
} as const;

/** Part of the close reason, and of the error of a rejected resume, after another connection took over the session. */
export const SESSION_TAKEN_OVER_MESSAGE = "was taken over by another connection";

/** Close reasons of the connections of guests whose share link is no longer valid. */
export const SHARE_CLOSE_REASONS = {
  expired: "the share link has expired",
  revoked: "the share link was revoked",
} as const;

/** Close reason of a connection that `access/revoke` ended. The client does not reconnect. */
export const ACCESS_REVOKED_MESSAGE = "the access was revoked";

export interface RequestErrorOptions extends ErrorOptions {
  reason?: ErrorReason | undefined;
}

/** The error response to one request. The connection stays open. */
export class RequestError extends Error {
  static {
    shareInstances(RequestError, "procwire.RequestError");
  }

  override readonly name = "RequestError";
  /** One of `ErrorCode`, or any other code of another server. */
  readonly code: number;
  /** Machine-readable cause. Absent for most errors, and from Codex servers. */
  readonly reason: ErrorReason | undefined;

  constructor(code: number, message: string, options?: RequestErrorOptions) {
    super(message, options);
    this.code = code;
    this.reason = options?.reason;
  }
}

export const invalidRequest = (message: string, options?: RequestErrorOptions) =>
  new RequestError(ErrorCode.invalidRequest, message, options);
export const invalidParams = (message: string, options?: RequestErrorOptions) =>
  new RequestError(ErrorCode.invalidParams, message, options);
export const internalError = (message: string, options?: RequestErrorOptions) =>
  new RequestError(ErrorCode.internal, message, options);
export const notFound = (message: string, options?: RequestErrorOptions) =>
  new RequestError(ErrorCode.notFound, message, options);

/** A protocol violation by the peer. Closes the connection and detaches its session. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}

/** Prefix of every message about a lost connection. Existing v0 clients match it. */
export const DISCONNECTED_PREFIX = "exec-server transport disconnected";

/** The error of every pending and later call after the connection was lost. */
export class DisconnectedError extends ExecServerError {
  static {
    shareInstances(DisconnectedError, "procwire.DisconnectedError");
  }

  override readonly name = "DisconnectedError";
  /** Why the connection was lost; null if unknown. The message contains it after the prefix. */
  readonly lossReason: string | null;

  constructor(reason?: string, options?: ErrorOptions, details?: ExecServerErrorDetails) {
    super(reason ? `${DISCONNECTED_PREFIX}: ${reason}` : DISCONNECTED_PREFIX, "DISCONNECTED", details, options);
    this.lossReason = reason || null;
  }

  /** Returns a copy with the details of one rejected call. */
  during(details: ExecServerErrorDetails): DisconnectedError {
    return new DisconnectedError(this.lossReason ?? undefined, { cause: this }, details);
  }
}

export interface WireError {
  code: number;
  message: string;
  /** Sent only to clients that requested an extension. */
  data?: { reason: ErrorReason } | undefined;
}

/**
 * Converts any thrown value to an error response. Values other than RequestError and ExecServerError are bugs: they are
 * passed to `onBug`, and the response is an internal error without their text.
 */
export function toWireError(
  error: unknown,
  isPeerExtended: boolean,
  onBug: (error: unknown) => void = () => undefined,
): WireError {
  if (!(error instanceof RequestError || error instanceof ExecServerError)) {
    onBug(error);
    return { code: ErrorCode.internal, message: "internal error" };
  }
  const code = error instanceof RequestError ? error.code : (error.rpcCode ?? ErrorCode.internal);
  const { message, reason } = error;
  return isPeerExtended && reason !== undefined ? { code, message, data: { reason } } : { code, message };
}

/** Converts an error response to an error. */
export function fromWireError({ code, message, data }: WireError): RequestError {
  return new RequestError(code, message, { reason: data?.reason });
}

/** Reads `data` of an error response. Returns undefined for a missing or unknown reason. */
export function readErrorData(data: unknown): WireError["data"] {
  const reason = isObject(data) ? ERROR_REASONS.find((known) => known === data.reason) : undefined;
  return reason && { reason };
}
