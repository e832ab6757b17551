import { NO_USAGE, type TokenUsage } from "../token-usage.ts";
import { isObject } from "./response-events.ts";

/**
 * Why a model call did not give an answer. The kind decides what happens next:
 * - `rate_limit`, `overloaded`: wait, then ask again; every lane hears of it;
 * - `server`, `transport`: ask again after a short back-off;
 * - `quota`, `auth`: nothing will work until a person acts;
 * - `context_length`, `refused`, `invalid_request`: this request will never work.
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
  /** The API's own word, e.g. `rate_limit_exceeded`. */
  code?: string | undefined;
  /** How long the API asked to wait. */
  retryAfterMs?: number;
  /** Another try cannot help, although the kind is usually worth one (a bad certificate). */
  permanent?: boolean;
  /** A kept-alive connection had been closed by the other side: the request was never looked at. */
  staleConnection?: boolean;
  /** The API answered no call at all, for longer than the outage patience. */
  apiAway?: boolean;
  /** The same request, sent again, will not hold what was refused. */
  sendAgain?: boolean;
  /** The tokens that a failed answer has cost. */
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
  readonly apiAway: boolean;
  readonly sendAgain: boolean;
  readonly usage: TokenUsage;

  constructor(kind: ModelErrorKind, message: string, details: ModelErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.kind = kind;
    this.status = details.status;
    this.code = details.code;
    this.retryAfterMs = details.retryAfterMs;
    this.retryable = RETRYABLE.has(kind) && details.permanent !== true;
    this.staleConnection = details.staleConnection === true;
    this.apiAway = details.apiAway === true;
    this.sendAgain = details.sendAgain === true;
    this.usage = details.usage ?? NO_USAGE;
  }

  /** The same error, told as the API's own and not the request's. */
  asOutage(): ModelError {
    return new ModelError(this.kind, this.message, {
      cause: this,
      status: this.status,
      code: this.code,
      apiAway: true,
      usage: this.usage,
    });
  }
}

const RETRYABLE: ReadonlySet<ModelErrorKind> = new Set(["rate_limit", "overloaded", "server", "transport"]);

/** An answer with a status other than 200. `body` is what came with it, as text. */
export function errorFromStatus(
  status: number,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  body: string,
): ModelError {
  const { code, message } = readErrorBody(body);
  const text = `the API answered ${status}${message ? `: ${message}` : ""}`;
  const retryAfterMs = retryAfterFromHeaders(headers) ?? retryAfterFromText(message);
  const details: ModelErrorDetails = { status };
  if (code) details.code = code;
  if (retryAfterMs !== undefined) details.retryAfterMs = retryAfterMs;
  return new ModelError(kindOfText(status, message) ?? kindOfStatus(status, code), text, details);
}

/** A `response.failed` or `error` event inside a stream that had begun well. */
export function errorFromEvent(code: string, message: string): ModelError {
  const details: ModelErrorDetails = {};
  if (code) details.code = code;
  const retryAfterMs = retryAfterFromText(message);
  if (retryAfterMs !== undefined) details.retryAfterMs = retryAfterMs;
  const status = /^[45]\d\d$/.test(code) ? Number(code) : null;
  const kind = kindOfCode(code) ?? (status === null ? "server" : kindOfStatus(status, code));
  return new ModelError(kind, `the model failed: ${message || code}`, details);
}

/** A failure of the connection itself. */
export function errorFromTransport(error: unknown, reusedConnection: boolean): ModelError {
  if (error instanceof ModelError) return error;
  const code = errorCode(error);
  const message = error instanceof Error ? error.message || code : String(error);
  return new ModelError("transport", `the connection to the API failed: ${message}`, {
    cause: error,
    code: code || undefined,
    permanent: PERMANENT_TRANSPORT.test(code),
    staleConnection: reusedConnection && (code === "ECONNRESET" || code === "EPIPE"),
  });
}

/** Certificates do not become valid by asking again. */
const PERMANENT_TRANSPORT = /^(CERT_|ERR_TLS_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_|UNABLE_TO_)/;

function kindOfStatus(status: number, code: string): ModelErrorKind {
  const byCode = kindOfCode(code);
  if (status === 429) return byCode === "quota" ? "quota" : "rate_limit";
  if (status === 401 || status === 403) return "auth";
  if (status === 402) return "quota";
  if (status === 503 || status === 529) return "overloaded";
  if (status === 408 || status === 409 || status >= 500) return "server";
  return byCode && byCode !== "server" ? byCode : "invalid_request";
}

/** What only the words of a refusal tell, because its code is the same for every bad request. */
function kindOfText(status: number, message: string): ModelErrorKind | undefined {
  if (status !== 400 && status !== 413) return undefined;
  if (/maximum context length|prompt is too long|context window/i.test(message)) return "context_length";
  return /credit balance is too low/i.test(message) ? "quota" : undefined;
}

function kindOfCode(code: string): ModelErrorKind | undefined {
  switch (code) {
    case "rate_limit_exceeded":
    case "rate_limit_error":
      return "rate_limit";
    case "insufficient_quota":
    case "usage_not_included":
    case "usage_limit_reached":
    case "billing_hard_limit_reached":
    case "billing_error":
      return "quota";
    case "server_is_overloaded":
    case "slow_down":
    case "overloaded_error":
      return "overloaded";
    case "context_length_exceeded":
    case "request_too_large":
      return "context_length";
    case "invalid_prompt":
    case "content_policy_violation":
    case "content_filter":
    case "cyber_policy":
      return "refused";
    case "invalid_api_key":
    case "authentication_error":
    case "permission_error":
      return "auth";
    case "server_error":
    case "api_error":
    case "timeout_error":
      return "server";
    default:
      return undefined;
  }
}

/** Error bodies are JSON `{error: {code, message}}` with most providers, and anything at all with proxies. */
function readErrorBody(body: string): { code: string; message: string } {
  try {
    const json: unknown = JSON.parse(body);
    const parsed: unknown = Array.isArray(json) ? json[0] : json;
    const error = field(parsed, "error") ?? parsed;
    const code = field(error, "code") ?? field(error, "type");
    const message = typeof error === "string" ? error : (field(error, "message") ?? field(error, "detail"));
    return {
      code: typeof code === "string" ? code : "",
      message: typeof message === "string" ? oneLine(message) : "",
    };
  } catch {
    return { code: "", message: oneLine(body) };
  }
}

function field(value: unknown, name: string): unknown {
  return isObject(value) ? value[name] : undefined;
}

/** Long enough to say what is wrong, short enough for a cell of a table. */
const MAX_ERROR_CHARS = 500;

function oneLine(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > MAX_ERROR_CHARS ? `${line.slice(0, MAX_ERROR_CHARS)}…` : line;
}

function retryAfterFromHeaders(
  headers: Readonly<Record<string, string | string[] | undefined>>,
): number | undefined {
  const ms = Number(single(headers["retry-after-ms"]));
  if (Number.isFinite(ms) && ms > 0) return ms;
  const value = single(headers["retry-after"]);
  if (value === "") return undefined;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}

function single(value: string | string[] | undefined): string {
  return (Array.isArray(value) ? value[0] : value) ?? "";
}

/** "Please try again in 1.5s", as rate-limit messages say. */
function retryAfterFromText(message: string): number | undefined {
  const match = /try again in\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|minutes?)\b/i.exec(message);
  if (!match?.[1] || !match[2]) return undefined;
  const amount = Number(match[1]);
  const unit = match[2].toLowerCase();
  if (unit.startsWith("ms") || unit.startsWith("milli")) return amount;
  return unit.startsWith("s") ? amount * 1000 : amount * 60_000;
}

function errorCode(error: unknown): string {
  const code = field(error, "code");
  return typeof code === "string" ? code : "";
}
