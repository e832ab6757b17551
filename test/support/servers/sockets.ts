/** The two kinds of sockets a server can listen with, for suites that test both. */

import { nodeSocketProvider } from "../../../src/connection/socket-provider.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { loadAddon } from "../../../src/native/load-addon.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import type { ExecServerTransport } from "../../../src/server/listen/listen-url.ts";
import type { ListeningServer } from "../../../src/server/listen/websocket-gateway.ts";

export type SocketKind = "the addon's sockets" | "Node's sockets";

export const SOCKET_KINDS: readonly SocketKind[] = ["the addon's sockets", "Node's sockets"];

/** Returns why a kind cannot be tested on this host, or false. */
export function missing(kind: SocketKind): string | false {
  const addon = loadAddon();
  if (kind === "Node's sockets" || addon.type === "loaded") return false;
  if (process.env.CI !== undefined) throw new Error(`the addon is missing: ${addon.why}`);
  return `THE ADDON'S SOCKETS ARE NOT TESTED: ${addon.why}`;
}

export interface SocketServer {
  server: ExecServer;
  url: string;
  close(): Promise<void>;
}

/** Starts a server in this process, on sockets of that kind. */
export async function serveOn(
  kind: SocketKind,
  transport: Parameters<typeof listen>[1] = LOOPBACK,
): Promise<SocketServer> {
  const host = createLocalHost();
  const server = new ExecServer(kind === "Node's sockets" ? { ...host, sockets: nodeSocketProvider } : host);
  const listening: ListeningServer = await listen(server, transport);
  return {
    server,
    url: listening.url,
    close: async () => {
      const unbound = listening.close();
      await server.close();
      await unbound;
    },
  };
}

const LOOPBACK = {
  type: "websocket",
  host: "127.0.0.1",
  port: 0,
} as const satisfies ExecServerTransport;
