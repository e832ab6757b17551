import type { IncomingMessage } from "node:http";
import { internalError } from "../protocol/errors.ts";
import { isHttp } from "./http-message.ts";

/** One request on the way to an answer. */
export interface Hop {
  method: string;
  url: URL;
  /** By lower-case name. */
  headers: Record<string, string[]>;
  /** Names of headers that, like a cookie, are meant for the first host alone. */
  private: readonly string[];
  body: Uint8Array;
}

/** Where a response sends its request on to, or null when it is to be answered as it is. */
export function nextHop(hop: Hop, response: IncomingMessage): Hop | null {
  const status = response.statusCode ?? 0;
  if (![301, 302, 303, 307, 308].includes(status)) return null;
  const { location } = response.headers;
  const url = location === undefined ? null : URL.parse(location, hop.url.href);
  if (url === null) return null;
  if (!isHttp(url)) {
    const scheme = url.protocol.slice(0, -1);
    throw internalError(`http/request failed: redirect target uses unsupported URL scheme: ${scheme}`);
  }
  const keepsMethod = status === 307 || status === 308 || hop.method === "GET" || hop.method === "HEAD";
  const dropped = [
    ...(keepsMethod ? [] : OF_THE_BODY),
    ...(url.origin === hop.url.origin ? [] : [...SECRET, ...hop.private]),
  ];
  return {
    method: keepsMethod ? hop.method : "GET",
    url,
    headers: Object.fromEntries(Object.entries(hop.headers).filter(([name]) => !dropped.includes(name))),
    private: hop.private,
    body: keepsMethod ? hop.body : new Uint8Array(),
  };
}

const OF_THE_BODY = ["content-type", "content-encoding", "content-language", "content-location"];

/** Meant for the first host alone. */
const SECRET = ["authorization", "cookie", "cookie2", "proxy-authorization", "www-authenticate", "host"];
