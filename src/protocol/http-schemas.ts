import type { Infer } from "./schema.ts";
import { array, boolean, bytes, enumOf, id, nullable, nullish, object, string, u16, u64 } from "./schema.ts";

const httpHeader = object("HttpHeader", () => ({
  name: string,
  value: string,
  /** Name of a variable in the server's environment. The server appends its value to `value`. */
  valueEnvVar: nullish(string),
}));
export interface HttpHeaderParam extends Infer<typeof httpHeader> {}

export const requestParams = object("HttpRequestParams", () => ({
  method: string,
  url: string,
  headers: nullish(array(httpHeader)),
  bodyBase64: nullish(bytes),
  /** Timeout of the whole exchange, including the body. Default: none. */
  timeoutMs: nullish(u64),
  /** Default: `follow`. */
  redirectPolicy: nullish(enumOf("follow", "stop")),
  /** Id of the body deltas; must be unique among the open streams of the connection. Ignored without `streamResponse`. */
  requestId: id,
  /** Returns an empty body and sends the body as deltas. */
  streamResponse: nullish(boolean),
}));

export const requestResult = object("HttpResult", () => ({
  status: u16,
  headers: array(object("HttpResponseHeader", () => ({ name: string, value: string }))),
  bodyBase64: bytes,
}));

/** A chunk of a streamed body. The last chunk is empty and has `done: true`, and `error` if the body was interrupted. */
export const bodyDeltaParams = object("HttpBodyDelta", () => ({
  requestId: id,
  /** Starts at 1. */
  seq: u64,
  deltaBase64: bytes,
  done: boolean,
  error: nullable(string),
}));

/** An HTTP request as the host receives it, with decoded body. */
export interface HttpRequestParams extends Omit<Infer<typeof requestParams>, "bodyBase64"> {
  body?: Uint8Array | undefined;
}

/** An HTTP response. A streamed response has an empty body and sends deltas after `stream` was called. */
export interface HttpResult extends Omit<Infer<typeof requestResult>, "bodyBase64"> {
  body: Uint8Array;
  stream?: () => void;
}

export interface HttpBodyDelta extends Omit<Infer<typeof bodyDeltaParams>, "deltaBase64"> {
  delta: Uint8Array;
}
