import {
  array,
  boolean,
  bytes,
  type Infer,
  id,
  nullable,
  object,
  oneOf,
  optional,
  string,
  u16,
  u64,
} from "./schema.ts";

/** The shapes of `http/*`. */

const httpHeader = object("HttpHeader", {
  name: string,
  value: string,
  /** The value of this variable of the server's environment is put after `value`. */
  valueEnvVar: optional(string),
});
export type HttpHeaderParam = Infer<typeof httpHeader>;

export const requestParams = object("HttpRequestParams", {
  method: string,
  url: string,
  headers: optional(array(httpHeader)),
  bodyBase64: optional(bytes),
  /** For the whole exchange, body included. Default: as long as it takes. */
  timeoutMs: optional(u64),
  /** Default `follow`. */
  redirectPolicy: optional(oneOf("follow", "stop")),
  /** Names the body's deltas; must be free among the connection's streams. Ignored without `streamResponse`. */
  requestId: id,
  /** Answers with an empty body and sends it as deltas instead. */
  streamResponse: optional(boolean),
});

export const requestResult = object("HttpResult", {
  status: u16,
  headers: array(object("HttpResponseHeader", { name: string, value: string })),
  bodyBase64: bytes,
});

/** A piece of a streamed body; the last one is empty and `done`, with the reason in `error` if the body broke off. */
export const bodyDeltaParams = object("HttpBodyDelta", {
  requestId: id,
  /** From 1. */
  seq: u64,
  deltaBase64: bytes,
  done: boolean,
  error: nullable(string),
});

/** A request as the host is asked to make it: the wire's, with the body under its own name. */
export interface HttpRequestParams extends Omit<Infer<typeof requestParams>, "bodyBase64"> {
  body?: Uint8Array | undefined;
}

/** A streamed answer has no body; its deltas begin once `stream` is called. */
export interface HttpAnswer extends Omit<Infer<typeof requestResult>, "bodyBase64"> {
  body: Uint8Array;
  stream?: () => void;
}

export interface HttpBodyDelta extends Omit<Infer<typeof bodyDeltaParams>, "deltaBase64"> {
  delta: Uint8Array;
}
