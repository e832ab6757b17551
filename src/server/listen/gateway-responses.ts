/** HTTP responses of the gateway: health endpoints, and rejected requests. */

import type { ConsoleGateway } from "../console/console-gateway.ts";
import type { ExecServer } from "../exec-server.ts";
import { FOREIGN_HOST_MESSAGE, isAllowedHost } from "./host-header.ts";
import type { RequestHead } from "./http-request-head.ts";

/** An HTTP response without a connection upgrade. */
export interface GatewayResponse {
  status: number;
  body: string;
  type?: string;
  allow?: string;
}

/** Reason phrases by status. */
const REASONS: Record<number, string> = {
  200: "OK",
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
  503: "Service Unavailable",
  505: "HTTP Version Not Supported",
};

const TEXT = "text/plain; charset=utf-8";

export function httpResponse(status: number, body = ""): GatewayResponse {
  return body === "" ? { status, body } : { status, body, type: TEXT };
}

/** Returns the bytes of a response after which the connection closes. */
export function encodeHttpResponse({ status, body, type, allow }: GatewayResponse, headOnly: boolean): Buffer {
  const lines = [
    `HTTP/1.1 ${status} ${REASONS[status] ?? ""}`,
    ...(type ? [`content-type: ${type}`] : []),
    ...(allow ? [`allow: ${allow}`] : []),
    `content-length: ${Buffer.byteLength(body)}`,
    "connection: close",
  ];
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n${headOnly ? "" : body}`);
}

/** Returns the error response to an invalid WebSocket upgrade, or null if the upgrade is valid. */
export function validateUpgrade(head: RequestHead): GatewayResponse | null {
  const { headers } = head;
  if (head.path !== "/") return httpResponse(404);
  if (head.method !== "GET") return httpResponse(405, "Request method must be `GET`");
  if (headers.get("upgrade")?.toLowerCase() !== "websocket") {
    return httpResponse(400, "`Upgrade` header did not include 'websocket'");
  }
  if (headers.get("sec-websocket-version") !== "13") {
    return httpResponse(400, "`Sec-WebSocket-Version` header did not include '13'");
  }
  if (!headers.get("sec-websocket-key")) return httpResponse(400, "`Sec-WebSocket-Key` header missing");
  return null;
}

/** Returns the response to a request that is not an upgrade, on a server without console and metrics. */
export function routeHttp(server: ExecServer, head: RequestHead): GatewayResponse {
  const isRead = head.method === "GET" || head.method === "HEAD";
  switch (head.path) {
    case "/readyz":
      return isRead ? httpResponse(200) : { ...httpResponse(405), allow: "GET,HEAD" };
    case "/healthz":
      return isRead ? healthResponse(server) : { ...httpResponse(405), allow: "GET,HEAD" };
    case "/":
      return isRead
        ? httpResponse(400, "Connection header did not include 'upgrade'")
        : httpResponse(405, "Request method must be `GET`");
    default:
      return httpResponse(404);
  }
}

/** Returns status 200 also for a degraded server: it still serves, and the body lists the degraded components. */
export function healthResponse(server: ExecServer): GatewayResponse {
  const degraded = server.degradedComponents();
  const status = degraded.length === 0 ? "ok" : "degraded";
  const { connectionCount: connections, sessionCount: sessions } = server;
  return {
    status: 200,
    body: `${JSON.stringify({ status, degraded, connections, sessions })}\n`,
    type: "application/json",
  };
}

/**
 * Rejects web pages of other sites, by `Origin`, and DNS names that an attacker pointed at this server, by `Host`.
 * Pages of this server pass: their origin equals the requested host.
 */
export function rejectForeignOrigin(
  head: RequestHead,
  hosts: ReadonlySet<string> | null,
  web: Pick<ConsoleGateway, "isAllowedOrigin"> | null,
): GatewayResponse | null {
  const origin = head.headers.get("origin");
  const host = head.headers.get("host");
  const isAllowed =
    origin === undefined ||
    (isSameOrigin(head) && isAllowedHost(host, hosts ?? NO_NAMES)) ||
    web?.isAllowedOrigin(origin) === true;
  if (!isAllowed) return web ? httpResponse(403, FOREIGN_ORIGIN) : httpResponse(403);
  return hosts !== null && !isAllowedHost(host, hosts) ? httpResponse(403, FOREIGN_HOST_MESSAGE) : null;
}

/** Also accepts https, for a server that runs behind a TLS proxy. */
export function isSameOrigin({ headers }: RequestHead): boolean {
  const host = headers.get("host");
  const origin = headers.get("origin");
  return origin === `http://${host}` || origin === `https://${host}`;
}

const FOREIGN_ORIGIN =
  "pages of this origin may not connect; start the server with `--allow-origin ORIGIN` to allow them";

const NO_NAMES: ReadonlySet<string> = new Set();
