import { getErrorCode } from "../../base/error-code.ts";
import { isObject } from "../../base/type-guards.ts";
import { NO_USAGE, type TokenUsage } from "../token-usage.ts";
import { kindOfText, retryAfterFromText } from "./model-api-compat.ts";

/**
 * Why a model call has no answer. The kind decides what happens next:
 * - `rate_limit`, `overloaded`: wait, then retry; the delay applies to all slots;
 * - `server`, `transport`: retry after a short backoff;
 * - `quota`, `auth`: every call fails until the user acts;
 * - `context_length`, `refused`, `invalid_request`: this request always fails.
 */
export type ModelErrorKind =
  | "rate_limit"
  | "overloaded"
  | "server"
  | "transport"
  | "quota"
  | "auth"
  | "context_length"
  | "refused"
  | "invalid_request";

export interface ModelErrorDetails extends ErrorOptions {
  status?: number | undefined;
  /** Error code of the API, for example `rate_limit_exceeded`. */
  code?: string | undefined;
  /** Delay that the API requested. */
  retryAfterMs?: number | undefined;
  /** Whether a retry is pointless although the kind is usually retried, as for an invalid certificate. */
  permanent?: boolean;
  /** Whether the server had closed a reused connection, so that it never received the request. */
  staleConnection?: boolean;
  /** Whether the API answered no call at all, for longer than the outage timeout. */
  isOutage?: boolean;
  /** Whether an immediate retry omits the rejected parameter. */
  retryImmediately?: boolean;
  /** Tokens of the failed answer. */
  usage?: TokenUsage;
}

export class ModelError extends Error {
  override readonly name = "ModelError";
  readonly kind: ModelErrorKind;
  readonly status: number | undefined;
  readonly code: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly retryable: boolean;
  readonly staleConnection: boolean;
  readonly isOutage: boolean;
  readonly retryImmediately: boolean;
  readonly usage: TokenUsage;

  constructor(kind: ModelErrorKind, message: string, details: ModelErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.kind = kind;
    this.status = details.status;
    this.code = details.code;
    this.retryAfterMs = details.retryAfterMs;
    this.retryable = RETRYABLE.has(kind) && details.permanent !== true;
    this.staleConnection = details.staleConnection === true;
    this.isOutage = details.isOutage === true;
    this.retryImmediately = details.retryImmediately === true;
    this.usage = details.usage ?? NO_USAGE;
  }

  /** Returns the same error, attributed to the API instead of the request. */
  asOutage(): ModelError {
    return new ModelError(this.kind, this.message, {
      cause: this,
      status: this.status,
      code: this.code,
      isOutage: true,
      usage: this.usage,
    });
  }
}

const RETRYABLE: ReadonlySet<ModelErrorKind> = new Set(["rate_limit", "overloaded", "server", "transport"]);

/** Converts a response with a status other than 200. `body` is its text. */
export function errorFromStatus(
  status: number,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  body: string,
): ModelError {
  const { code, message } = readErrorBody(body);
  const text = `the API answered ${status}${message ? `: ${message}` : ""}`;
  const retryAfterMs = retryAfterFromHeaders(headers) ?? retryAfterFromText(message);
  const kind = kindOfText(status, message) ?? kindOfStatus(status, code);
  return new ModelError(kind, text, { status, code, retryAfterMs });
}

/** Converts a `response.failed` or `error` event of a stream. The code is undefined if the event has none. */
export function errorFromEvent(code: string | undefined, message: string): ModelError {
  const status = code !== undefined && /^[45]\d\d$/.test(code) ? Number(code) : null;
  const kind = findKind(code) ?? (status === null ? "server" : kindOfStatus(status, code));
  const details = { code, retryAfterMs: retryAfterFromText(message) };
  return new ModelError(kind, `the model failed: ${message || (code ?? "")}`, details);
}

/** Converts an error of the connection. */
export function errorFromTransport(error: unknown, reusedConnection: boolean): ModelError {
  if (error instanceof ModelError) return error;
  const code = getErrorCode(error) ?? undefined;
  const message = error instanceof Error ? error.message || (code ?? "") : String(error);
  return new ModelError("transport", `the connection to the API failed: ${message}`, {
    cause: error,
    code,
    permanent: code !== undefined && PERMANENT_TRANSPORT.test(code),
    staleConnection: reusedConnection && (code === "ECONNRESET" || code === "EPIPE"),
  });
}

/** A retry does not make a certificate valid. */
const PERMANENT_TRANSPORT = /^(CERT_|ERR_TLS_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_|UNABLE_TO_)/;

function kindOfStatus(status: number, code: string | undefined): ModelErrorKind {
  const byCode = findKind(code);
  if (status === 429) return byCode === "quota" ? "quota" : "rate_limit";
  if (status === 401 || status === 403) return "auth";
  if (status === 402) return "quota";
  if (status === 503 || status === 529) return "overloaded";
  if (status === 408 || status === 409 || status >= 500) return "server";
  return byCode && byCode !== "server" ? byCode : "invalid_request";
}

/** Error codes of all supported APIs. */
const KIND_BY_CODE: ReadonlyMap<string, ModelErrorKind> = new Map([
  ...withKind("rate_limit", "rate_limit_exceeded", "rate_limit_error"),
  ...withKind("quota", "insufficient_quota", "usage_not_included", "usage_limit_reached"),
  ...withKind("quota", "billing_hard_limit_reached", "billing_error"),
  ...withKind("overloaded", "server_is_overloaded", "slow_down", "overloaded_error"),
  ...withKind("context_length", "context_length_exceeded", "request_too_large"),
  ...withKind("refused", "invalid_prompt", "content_policy_violation", "content_filter", "cyber_policy"),
  ...withKind("auth", "invalid_api_key", "authentication_error", "permission_error"),
  ...withKind("server", "server_error", "api_error", "timeout_error"),
]);

const findKind = (code: string | undefined) => (code === undefined ? undefined : KIND_BY_CODE.get(code));

function withKind(kind: ModelErrorKind, ...names: string[]): [string, ModelErrorKind][] {
  return names.map((name) => [name, kind]);
}

/** Parses an error body: JSON `{error: {code, message}}` for most providers, any text for proxies. */
function readErrorBody(body: string): { code: string | undefined; message: string } {
  try {
    const json: unknown = JSON.parse(body);
    const parsed: unknown = Array.isArray(json) ? json[0] : json;
    const error = readField(parsed, "error") ?? parsed;
    const code = readField(error, "code") ?? readField(error, "type");
    const message = typeof error === "string" ? error : (readField(error, "message") ?? readField(error, "detail"));
    return {
      code: typeof code === "string" ? code || undefined : undefined,
      message: typeof message === "string" ? toOneLine(message) : "",
    };
  } catch {
    return { code: undefined, message: toOneLine(body) };
  }
}

function readField(value: unknown, name: string): unknown {
  return isObject(value) ? value[name] : undefined;
}

/** Sufficient for the cause; short enough for a table cell. */
const MAX_ERROR_CHARS = 500;

function toOneLine(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > MAX_ERROR_CHARS ? `${line.slice(0, MAX_ERROR_CHARS)}…` : line;
}

/** Returns the delay that the API requested; undefined if it requested none, or a time that has passed. */
function retryAfterFromHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): number | undefined {
  const ms = Number(firstHeaderValue(headers["retry-after-ms"]));
  if (Number.isFinite(ms) && ms > 0) return ms;
  const value = firstHeaderValue(headers["retry-after"]);
  if (!value) return undefined;
  const seconds = Number(value);
  const delayMs = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(value) - apiTimeMs(headers);
  return delayMs > 0 ? delayMs : undefined;
}

/** Returns the time of the API's clock, which may differ from that of this host. */
export function apiTimeMs(headers: Readonly<Record<string, string | string[] | undefined>>): number {
  const sentAtMs = Date.parse(firstHeaderValue(headers.date) ?? "");
  return Number.isNaN(sentAtMs) ? Date.now() : sentAtMs;
}

/** Returns the first value of an HTTP header, or undefined if the header is absent. */
export function firstHeaderValue(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}
