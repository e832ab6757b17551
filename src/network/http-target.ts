import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";

/** The destination of an HTTP request to the proxy. */
export interface HttpTarget {
  scheme: "http" | "https";
  host: string;
  port: number;
  /** Path and query for the origin server. */
  path: string;
  /** Host header of the request, which names the same host and port; null if there is none. */
  hostHeader: string | null;
}

/** A request that the proxy rejects with status 400. */
export class BadTargetError extends Error {}

const DEFAULT_PORTS = { http: 80, https: 443 } as const;

/**
 * Returns the destination of a request in absolute form or origin form. `connection` is the scheme of the latter. Throws
 * `BadTargetError`.
 */
export function parseHttpTarget(request: IncomingMessage, connection: HttpTarget["scheme"] = "http"): HttpTarget {
  const url = request.url ?? "";
  // HTTP/0.9 has no headers, so that the end of a request is ambiguous.
  if (request.httpVersionMajor !== 1) throw new BadTargetError("unsupported HTTP version");
  const hostHeader = readHostHeader(request);
  const [, scheme, authority = "", rest = ""] = /^([a-z]+):\/\/([^/?#]*)(.*)$/is.exec(url) ?? [];
  if (scheme === undefined) {
    if (!url.startsWith("/") && url !== "*") throw new BadTargetError("invalid request target");
    if (hostHeader === null) throw new BadTargetError("missing host");
    const target = parseAuthority(hostHeader, DEFAULT_PORTS[connection], "invalid Host header");
    return { scheme: connection, ...target, path: url, hostHeader };
  }
  const kind = scheme.toLowerCase();
  if (kind !== "http" && kind !== "https") throw new BadTargetError("invalid request target");
  const target = parseAuthority(authority, DEFAULT_PORTS[kind], "invalid request target");
  if (hostHeader !== null) {
    const named = parseAuthority(hostHeader, DEFAULT_PORTS[kind], "invalid Host header");
    if (named.host.toLowerCase() !== target.host.toLowerCase() || named.port !== target.port)
      throw new BadTargetError("Host header does not match request target");
  }
  const path = rest.replace(/#.*$/s, "");
  return { scheme: kind, ...target, path: path.startsWith("/") ? path : `/${path}`, hostHeader };
}

/** Returns the destination of a CONNECT request. A missing port is 80, as in Codex. */
export function parseConnectTarget(url: string): { host: string; port: number } {
  return parseAuthority(url, 80, "invalid request target");
}

function readHostHeader({ rawHeaders }: IncomingMessage): string | null {
  const values = rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === "host");
  if (values.length > 1) throw new BadTargetError("invalid Host header");
  const value = values[0]?.trim() ?? "";
  // As in Codex: an IPv6 address in this header needs a port.
  if (/^\[.*\]$/s.test(value)) throw new BadTargetError("invalid Host header");
  return value === "" ? null : value;
}

/** Parses `name`, `name:port`, `[v6]` and `[v6]:port`. */
function parseAuthority(text: string, defaultPort: number, problem: string): { host: string; port: number } {
  if (text === "") throw new BadTargetError("missing host");
  const [, bracketed, name, digits] = /^(?:\[([\da-f:.]+)\]|([^:/?#@[\]\\\s]+))(?::(\d{1,5}))?$/is.exec(text) ?? [];
  const host = bracketed ?? name;
  const port = digits === undefined ? defaultPort : Number(digits);
  if (host === undefined || port === 0 || port > 65_535) throw new BadTargetError(problem);
  if (bracketed !== undefined && isIP(bracketed) !== 6) throw new BadTargetError(problem);
  return { host, port };
}

/** Formats an authority, with brackets around an IPv6 address. */
export function hostAndPort(host: string, port: number): string {
  return isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Formats the Host header of a request to the target. */
export function hostHeader({ scheme, host, port }: Pick<HttpTarget, "scheme" | "host" | "port">): string {
  const name = isIP(host) === 6 ? `[${host}]` : host;
  return port === DEFAULT_PORTS[scheme] ? name : `${name}:${port}`;
}
