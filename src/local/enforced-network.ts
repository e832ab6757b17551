import { closeSync } from "node:fs";
import type { Server, Socket } from "node:net";
import type { StartParams } from "../exec/exec-process.ts";
import type { ProcessNetwork } from "./process-network.ts";

/** A listener of a sandbox: its port, and the handler of its connections. */
export interface SandboxListener {
  port: number;
  accept(socket: Socket): void;
}

/** The network of a sandboxed process that reaches only proxies. */
export interface SandboxNetwork {
  /** Proxy variables, which replace those of the process. */
  variables: Readonly<Record<string, string>>;
  listeners: readonly SandboxListener[];
  /** Why the process cannot run, as its error output; null if it can. */
  refusal: string | null;
  /** Closes all connections. */
  close(): void;
}

/** Leads a sandbox to the proxies on this host that its environment names. */
export type RouteProxies = (env: Readonly<Record<string, string>>) => Promise<SandboxNetwork>;

/**
 * Ports of the listeners inside a sandbox. The network namespace is empty, so they are free. They are outside of the range
 * from which the kernel chooses ports, and unusual enough for the servers that a command starts.
 */
const HTTP_PORT = 61128;
const SOCKS_PORT = 61080;
/** The first port of the listeners that lead to proxies of other programs. */
export const FIRST_ROUTE_PORT = 61200;

/** Connections that wait until the server accepts them. */
const BACKLOG = 1024;

/** Reports whether the sandbox of a start must let the process reach only its proxy. Without a sandbox it has no effect. */
export function isNetworkEnforced({ sandbox, enforceManagedNetwork }: StartParams): boolean {
  return enforceManagedNetwork === true && sandbox !== undefined && sandbox !== null;
}

/** Returns the network of a sandbox whose listeners the proxy of the process serves. */
export function proxiedNetwork(proxy: ProcessNetwork, { hasSocks }: { hasSocks: boolean }): SandboxNetwork {
  const socks: SandboxListener[] = hasSocks
    ? [{ port: SOCKS_PORT, accept: (socket) => proxy.acceptSocks(socket) }]
    : [];
  return {
    variables: proxy.variablesFor({ http: HTTP_PORT, socks: hasSocks ? SOCKS_PORT : null }),
    listeners: [{ port: HTTP_PORT, accept: (socket) => proxy.acceptHttp(socket) }, ...socks],
    refusal: null,
    // The backend closes the proxy.
    close: () => undefined,
  };
}

/** Returns a command that prints why the process cannot run and exits like Codex's sandbox program. */
export function refusalCommand(refusal: string): string[] {
  return ["/bin/sh", "-c", 'printf "%s\\n" "$0" >&2; exit 101', refusal];
}

/** Accepts the connections of a sandbox until it is closed. */
export class SandboxListeners {
  readonly #network: SandboxNetwork;
  readonly #servers: Server[] = [];
  #isClosed = false;

  constructor(network: SandboxNetwork) {
    this.#network = network;
  }

  get ports(): readonly number[] {
    return this.#network.listeners.map(({ port }) => port);
  }

  /** Takes ownership of descriptors of listening sockets, one per port. */
  serve(descriptors: readonly number[]): void {
    // Imported here, because node:net imports node:stream, which delays the start of a server.
    const { createServer } = process.getBuiltinModule("node:net");
    for (const [index, fd] of descriptors.entries()) {
      const listener = this.#network.listeners[index];
      if (this.#isClosed || !listener) {
        closeSync(fd);
        continue;
      }
      const server = createServer({ allowHalfOpen: true }, (socket) => listener.accept(socket));
      // A failed accept ends one connection only.
      server.on("error", () => undefined);
      server.listen({ fd, backlog: BACKLOG });
      this.#servers.push(server);
    }
  }

  /** Closes the listeners and all connections. Idempotent. */
  close(): void {
    this.#isClosed = true;
    for (const server of this.#servers.splice(0)) server.close();
    this.#network.close();
  }
}
