import type { IncomingMessage } from "node:http";
import { internalError } from "../protocol/errors.ts";
import { isHttp } from "./http-message.ts";

/** One request of a redirect chain. */
export interface RedirectHop {
  method: string;
  url: URL;
  /** By lower-case name. */
  headers: Record<string, string[]>;
  /** Names of headers that, like cookies, are sent to the first host only. */
  private: readonly string[];
  body: Uint8Array;
}

/** Returns the next request of a redirect; null if the response is not a redirect. */
export function followRedirect(hop: RedirectHop, response: IncomingMessage): RedirectHop | null {
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
    ...(keepsMethod ? [] : BODY_HEADERS),
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

const BODY_HEADERS = ["content-type", "content-encoding", "content-language", "content-location"];

/** Sent to the first host only. */
const SECRET = ["authorization", "cookie", "cookie2", "proxy-authorization", "www-authenticate", "host"];
