import { isUtf8 } from "node:buffer";
import { invalidParams } from "../protocol/errors.ts";
import type { HttpHeaderParam } from "../protocol/http-schemas.ts";

/** The parts of a request as the wire gives them, checked and worded as the protocol words them. */
export function checkedUrl(text: string): URL {
  const invalid = (why: string) => invalidParams(`http/request url is invalid: ${why}`);
  const url = URL.parse(text);
  if (url === null) {
    if (!/^\s*[A-Za-z][A-Za-z0-9+.-]*:/.test(text)) throw invalid("relative URL without a base");
    throw invalid(/^\s*https?:[/\\]*$/i.test(text) ? "empty host" : "invalid host or port");
  }
  if (!isHttp(url)) {
    throw invalidParams(`http/request only supports http and https URLs, got ${url.protocol.slice(0, -1)}`);
  }
  return url;
}

export function isHttp(url: URL): boolean {
  return url.protocol === "http:" || url.protocol === "https:";
}

export function checkedMethod(method: string): string {
  if (!TOKEN.test(method)) throw invalidParams("http/request method is invalid: invalid HTTP method");
  return method;
}

/** The lower-case names of headers that carry a value of the host's environment. */
export function namesFromEnvironment(headers: HttpHeaderParam[]): string[] {
  return headers.flatMap(({ name, valueEnvVar }) => (valueEnvVar === undefined ? [] : [name.toLowerCase()]));
}

/** Headers by lower-case name; a name given twice is sent twice. */
export function outgoingHeaders(
  headers: HttpHeaderParam[],
  env: NodeJS.ProcessEnv,
): Record<string, string[]> {
  const result: Record<string, string[]> = Object.create(null);
  for (const header of headers) {
    if (!TOKEN.test(header.name)) {
      throw invalidParams("http/request header name is invalid: invalid HTTP header name");
    }
    const value = header.value + (header.valueEnvVar === undefined ? "" : fromEnvironment(header, env));
    // A header is bytes: text goes as UTF-8, which Node takes one character a byte.
    const bytes = Buffer.from(value).toString("latin1");
    if (!HEADER_VALUE.test(bytes)) {
      throw invalidParams(
        `http/request header value is invalid for ${header.name}: failed to parse header value`,
      );
    }
    const name = header.name.toLowerCase();
    // How long the body is and how it is framed is for the sender to say.
    if (name === "content-length" || name === "transfer-encoding") continue;
    result[name] = [...(result[name] ?? []), bytes];
  }
  return result;
}

/** Pairs in the order they came, names in lower case; values that are no text are left out. */
export function receivedHeaders(rawHeaders: string[]): { name: string; value: string }[] {
  const headers: { name: string; value: string }[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const value = Buffer.from(rawHeaders[at + 1] ?? "", "latin1");
    if (isUtf8(value)) headers.push({ name: (rawHeaders[at] ?? "").toLowerCase(), value: value.toString() });
  }
  return headers;
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

function fromEnvironment(header: HttpHeaderParam, env: NodeJS.ProcessEnv): string {
  const name = header.valueEnvVar ?? "";
  const value = env[name];
  const needs = `http/request header ${header.name} requires`;
  if (value === undefined) throw invalidParams(`${needs} executor environment variable ${name}`);
  if (value === "") throw invalidParams(`${needs} a non-empty executor environment variable ${name}`);
  return value;
}
