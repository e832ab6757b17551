import { isObject } from "../base/type-guards.ts";
import { readErrorData, type WireError } from "./errors.ts";
import { type ParsedJson, parseJsonText } from "./json-text.ts";
import { parseWithBinaryChunk } from "./message-text.ts";
import { kindOf, MAX_ID_LENGTH } from "./schema.ts";

/** A request id, echoed unchanged. A bigint beyond the exact range of JavaScript numbers. */
export type RequestId = string | number | bigint;

/** The id in the error response to an unreadable message. */
export const UNREADABLE_ID = -1;

export interface Trace {
  traceparent?: string | undefined;
  tracestate?: string | undefined;
}

/** A JSON-RPC message. The member `jsonrpc` is never sent and is ignored in received messages. */
export type Message =
  | { type: "request"; id: RequestId; method: string; params: unknown; trace?: Trace | undefined }
  | { type: "notification"; method: string; params: unknown }
  | { type: "response"; id: RequestId; result: unknown }
  | { type: "error"; id: RequestId; error: WireError };

export type ParsedMessage = { ok: true; message: Message } | { ok: false; problem: string };

/** Parses a message. Returns a problem as a value instead of throwing, because the connection stays open. */
export function parseMessage(text: string): ParsedMessage {
  if (text.trim() === "") return { ok: false, problem: `EOF while parsing a value at line 1 column ${text.length}` };
  return toMessage(parseWithBinaryChunk(text) ?? parseJsonText(text));
}

/** Returns the message of parsed JSON. */
export function toMessage(parsed: ParsedJson): ParsedMessage {
  if (!parsed.ok) return parsed;
  const { value, idLiteral } = parsed;
  if (!isObject(value)) return { ok: false, problem: "expected a JSON-RPC object" };
  return classify(value, idLiteral);
}

/**
 * Determines the type of a message. With `method` it is a request (with `id`) or a notification (without). Otherwise
 * `result` makes it a response, and all other messages must be errors.
 */
function classify(value: Record<string, unknown>, idLiteral: string | null): ParsedMessage {
  const hasId = value.id !== undefined;
  const id = hasId ? readId(value.id, idLiteral) : undefined;
  if (typeof id === "string" && id.length > MAX_ID_LENGTH) {
    const problem = `a request's id is at most ${MAX_ID_LENGTH} characters long, this one has ${id.length}`;
    return { ok: false, problem };
  }
  if (hasId && id === undefined) {
    return { ok: false, problem: "data did not match any variant of untagged enum RequestId" };
  }
  if (value.method !== undefined) {
    const { method } = value;
    if (typeof method !== "string") return { ok: false, problem: `invalid type: ${kindOf(method)}, expected a string` };
    if (id === undefined) return { ok: true, message: { type: "notification", method, params: value.params } };
    const trace = readTrace(value.trace);
    if (trace === "malformed") {
      return { ok: false, problem: `invalid type: ${kindOf(value.trace)}, expected struct W3cTraceContext` };
    }
    return { ok: true, message: { type: "request", id, method, params: value.params, trace } };
  }
  if (value.result !== undefined) {
    if (id === undefined) return { ok: false, problem: "missing field `id`" };
    return { ok: true, message: { type: "response", id, result: value.result } };
  }
  const { error } = value;
  if (error === undefined) return { ok: false, problem: "missing field `error`" };
  if (!isObject(error))
    return { ok: false, problem: `invalid type: ${kindOf(error)}, expected struct JSONRPCErrorError` };
  const { code, message } = error;
  if (typeof code !== "number") return { ok: false, problem: "missing field `code`" };
  if (typeof message !== "string") return { ok: false, problem: "missing field `message`" };
  if (id === undefined) return { ok: false, problem: "missing field `id`" };
  const data = readErrorData(error.data);
  return { ok: true, message: { type: "error", id, error: data ? { code, message, data } : { code, message } } };
}

/** Accepts a string, or a 64-bit integer without fraction or exponent. */
function readId(id: unknown, literal: string | null): RequestId | undefined {
  if (typeof id === "string") return id;
  if (typeof id !== "number" || literal === null || !/^-?\d+$/.test(literal)) return undefined;
  if (Number.isSafeInteger(id)) return id;
  const exact = BigInt(literal);
  return BigInt.asIntN(64, exact) === exact ? exact : undefined;
}

function readTrace(trace: unknown): Trace | undefined | "malformed" {
  if (trace === undefined || trace === null) return undefined;
  if (!isObject(trace)) return "malformed";
  const { traceparent, tracestate } = trace;
  return {
    traceparent: typeof traceparent === "string" ? traceparent : undefined,
    tracestate: typeof tracestate === "string" ? tracestate : undefined,
  };
}
