import { isUtf8 } from "node:buffer";
import { invalidParams } from "../protocol/errors.ts";
import type { HttpHeaderParam } from "../protocol/http-schemas.ts";

/** Validates a URL, with the error texts of the protocol. */
export function parseHttpUrl(text: string): URL {
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

export function parseMethod(method: string): string {
  if (!TOKEN.test(method)) throw invalidParams("http/request method is invalid: invalid HTTP method");
  return method;
}

/** Returns the lower-case names of headers with a value from the host's environment. */
export function envHeaderNames(headers: HttpHeaderParam[]): string[] {
  return headers.flatMap(({ name, valueEnvVar }) => (valueEnvVar === undefined ? [] : [name.toLowerCase()]));
}

/** Returns headers by lower-case name; a repeated name is sent repeatedly. */
export function outgoingHeaders(headers: HttpHeaderParam[], env: NodeJS.ProcessEnv): Record<string, string[]> {
  const result: Record<string, string[]> = Object.create(null);
  for (const header of headers) {
    if (!TOKEN.test(header.name)) {
      throw invalidParams("http/request header name is invalid: invalid HTTP header name");
    }
    const value = header.value + (header.valueEnvVar === undefined ? "" : fromEnvironment(header, env));
    // Headers are bytes: text is sent as UTF-8, which Node expects as one character per byte.
    const bytes = Buffer.from(value).toString("latin1");
    if (!HEADER_VALUE.test(bytes)) {
      throw invalidParams(`http/request header value is invalid for ${header.name}: failed to parse header value`);
    }
    const name = header.name.toLowerCase();
    // Node sets the length and the framing of the body.
    if (name === "content-length" || name === "transfer-encoding") continue;
    result[name] = [...(result[name] ?? []), bytes];
  }
  return result;
}

/** Returns name-value pairs in the received order, with lower-case names; omits values that are not UTF-8. */
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
