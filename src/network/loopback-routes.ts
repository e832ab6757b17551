import { connect, type Socket } from "node:net";
import { joinSockets } from "./tunnel.ts";

/** Variables that name a proxy, in any case. Codex rewrites the same ones. */
const PROXY_VARIABLES = new Set([
  ...["HTTP_PROXY", "HTTPS_PROXY", "WS_PROXY", "WSS_PROXY", "ALL_PROXY", "FTP_PROXY"],
  ...["YARN_HTTP_PROXY", "YARN_HTTPS_PROXY", "NPM_CONFIG_HTTP_PROXY", "NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_PROXY"],
  ...["BUNDLE_HTTP_PROXY", "BUNDLE_HTTPS_PROXY", "PIP_PROXY", "DOCKER_HTTP_PROXY", "DOCKER_HTTPS_PROXY"],
]);
const LOOPBACK_HOSTS = new Map([
  ["localhost", "127.0.0.1"],
  ["127.0.0.1", "127.0.0.1"],
  ["[::1]", "::1"],
]);
const DEFAULT_PORTS: Readonly<Record<string, number>> = {
  "https:": 443,
  ...Object.fromEntries(["socks5:", "socks5h:", "socks4:", "socks4a:"].map((scheme) => [scheme, 1080])),
};
/** Distinct endpoints of one environment. A sandbox passes at most 32 listeners. */
const MAX_ENDPOINTS = 16;

/** A proxy of another program on this host, and the port at which a sandbox reaches it. */
export interface LoopbackRoute {
  host: string;
  port: number;
  listenPort: number;
}

export type LoopbackRoutePlan =
  | { type: "routed"; routes: readonly LoopbackRoute[]; variables: Record<string, string> }
  /** `reason` is Codex's text. */
  | { type: "unroutable"; reason: string };

/**
 * Finds the loopback endpoints in the proxy variables of an environment. Assigns a port from `firstPort` on to each, and
 * returns the variables with these ports. Other proxies keep their variables, but a sandbox cannot reach them.
 */
export function planLoopbackRoutes(env: Readonly<Record<string, string>>, firstPort: number): LoopbackRoutePlan {
  const routes = new Map<string, LoopbackRoute>();
  const variables: Record<string, string> = {};
  let hasProxy = false;
  for (const [name, value] of Object.entries(env)) {
    const text = value.trim();
    if (!PROXY_VARIABLES.has(name.toUpperCase()) || text === "") continue;
    hasProxy = true;
    const endpoint = parseEndpoint(text);
    if (!endpoint) continue;
    const { url, host, port } = endpoint;
    const key = `${host} ${port}`;
    const route = routes.get(key) ?? { host, port, listenPort: firstPort + routes.size };
    if (routes.size >= MAX_ENDPOINTS && !routes.has(key)) continue;
    routes.set(key, route);
    variables[name] = rewrite(text, url, route.listenPort);
  }
  if (routes.size > 0) return { type: "routed", routes: [...routes.values()], variables };
  // prose-ok: all -- Codex text
  const needs = hasProxy ? "parseable loopback proxy endpoints" : "proxy environment variables";
  return { type: "unroutable", reason: `managed proxy mode requires ${needs}` };
}

/** Copies between connections of a sandbox and the endpoints of its routes. */
export class LoopbackRouter {
  readonly #isOwnListener: (address: string, port: number) => boolean;
  readonly #sockets = new Set<Socket>();
  #isClosed = false;

  /** `isOwnListener` reports whether this server listens there. Such a connection is reset. */
  constructor(isOwnListener: (address: string, port: number) => boolean) {
    this.#isOwnListener = isOwnListener;
  }

  accept(socket: Socket, { host, port }: LoopbackRoute): void {
    // The server would accept this connection without a token, as from an unsandboxed process.
    if (this.#isClosed || this.#isOwnListener(host, port)) {
      socket.on("error", () => undefined);
      socket.resetAndDestroy();
      return;
    }
    const target = connect({ host, port, allowHalfOpen: true, noDelay: true });
    for (const one of [socket, target]) {
      this.#sockets.add(one);
      one.once("close", () => this.#sockets.delete(one));
    }
    joinSockets(socket, target);
  }

  /** Closes all connections. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#sockets) socket.destroy();
  }
}

function parseEndpoint(text: string): { url: URL; host: string; port: number } | null {
  const url = URL.parse(text.includes("://") ? text : `http://${text}`);
  const host = url && LOOPBACK_HOSTS.get(url.hostname.toLowerCase());
  if (!url || host === undefined || host === null) return null;
  const port = url.port === "" ? (DEFAULT_PORTS[url.protocol] ?? 80) : Number(url.port);
  return port === 0 ? null : { url, host, port };
}

function rewrite(original: string, url: URL, port: number): string {
  url.hostname = "127.0.0.1";
  url.port = String(port);
  const text = original.includes("://") ? url.href : url.href.slice("http://".length);
  return /[/?#]/.test(original.slice(original.indexOf("://") + 3)) ? text : text.replace(/\/$/, "");
}
