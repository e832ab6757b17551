import type { Socket } from "node:net";
import { failWith } from "../forward/connect-socket.ts";
import { hostAndPort } from "./http-target.ts";
import type { Allowed } from "./request-judge.ts";

/** Longest response head of an upstream proxy. */
const MAX_HEAD_BYTES = 16 * 1024;

export interface UpstreamProxy {
  host: string;
  port: number;
  /** Value of `Proxy-Authorization`, if the URL has a user. */
  authorization: string | null;
}

/** The upstream proxies of this server: for plain HTTP requests, and for tunnels. */
export interface UpstreamProxies {
  http: UpstreamProxy | null;
  tunnel: UpstreamProxy | null;
}

/** Reads the proxy variables of the server. NO_PROXY is ignored, as in Codex. */
export function upstreamProxiesFromEnv(env: Record<string, string | undefined>): UpstreamProxies {
  const first = (...names: string[]) =>
    names.flatMap((name) => [env[name], env[name.toLowerCase()]]).find((value) => value !== undefined && value !== "");
  return {
    http: parseProxyUrl(first("HTTP_PROXY", "ALL_PROXY")),
    tunnel: parseProxyUrl(first("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")),
  };
}

/** Returns null for a URL that is not an HTTP proxy. */
function parseProxyUrl(text: string | undefined): UpstreamProxy | null {
  if (text === undefined) return null;
  const url = URL.parse(text.includes("://") ? text : `http://${text}`);
  if (url?.protocol !== "http:") return null;
  const user = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return {
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? 80 : Number(url.port),
    authorization: url.username === "" ? null : `Basic ${Buffer.from(user).toString("base64")}`,
  };
}

/** Asks the upstream proxy for a tunnel. Rejects unless it responds with status 2xx. */
export function openUpstreamTunnel(proxy: UpstreamProxy, socket: Socket, { host, port }: Allowed): Promise<Socket> {
  const authority = hostAndPort(host, port);
  const authorization = proxy.authorization === null ? "" : `Proxy-Authorization: ${proxy.authorization}\r\n`;
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${authorization}\r\n`);
  return new Promise((resolve, reject) => {
    let head: Buffer = Buffer.alloc(0);
    const finish = () => {
      socket.removeListener("data", onData);
      socket.removeListener("error", fail);
      socket.removeListener("close", onClose);
    };
    const fail = failWith(socket, finish, reject);
    const onClose = () => fail(new Error("the upstream proxy closed the connection"));
    const onData = (chunk: Buffer) => {
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf("\r\n\r\n");
      if (end < 0) {
        if (head.length > MAX_HEAD_BYTES) fail(new Error("the response head of the upstream proxy is too long"));
        return;
      }
      const [, status = ""] = /^HTTP\/1\.[01] (\d{3})/.exec(head.toString("latin1", 0, end)) ?? [];
      if (!status.startsWith("2")) {
        fail(new Error(`the upstream proxy responded with status ${status}`));
        return;
      }
      finish();
      socket.pause();
      if (head.length > end + 4) socket.unshift(head.subarray(end + 4));
      resolve(socket);
    };
    socket.on("data", onData);
    socket.once("error", fail);
    socket.once("close", onClose);
  });
}
