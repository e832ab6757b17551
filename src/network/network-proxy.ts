import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { type Clock, systemClock } from "../async/clock.ts";
import { normalizeHost } from "../protocol/network/domain-pattern.ts";
import type {
  NetworkAnswer,
  NetworkDecision,
  NetworkProxyConfig,
  NetworkRequest,
} from "../protocol/network/network-schemas.ts";
import type { ProxyPorts } from "./child-variables.ts";
import { TlsTerminator, type TlsTerminatorDeps } from "./credentials/tls-terminator.ts";
import { HeadDeadlines } from "./head-deadlines.ts";
import { requireValidConfig } from "./host-policy.ts";
import { HttpListener } from "./http-listener.ts";
import { type LookupAddresses, lookupAddresses } from "./name-lookup.ts";
import { Outgoing } from "./outgoing.ts";
import { RequestJudge } from "./request-judge.ts";
import { SocksListener } from "./socks-listener.ts";
import { type UpstreamProxies, upstreamProxiesFromEnv } from "./upstream-proxy.ts";

/** Concurrent connections of one process to its proxy. Further ones are reset. */
const MAX_CONNECTIONS = 2048;

export interface NetworkProxyOptions {
  processId: string;
  config: NetworkProxyConfig;
  decide?: ((request: NetworkRequest, signal: AbortSignal) => Promise<NetworkAnswer>) | undefined;
  onDecision?: ((decision: NetworkDecision) => void) | undefined;
  /** Reports whether the address and the port belong to a listener of this server. */
  isOwnListener: (address: string, port: number) => boolean;
  /** For `listen`: reports whether a connection comes from the process tree of this proxy. Others are reset. */
  isMember?: ((connection: { peerPort: number; localPort: number }) => Promise<boolean>) | undefined;
  lookup?: LookupAddresses | undefined;
  /** Default: from the environment of this server. */
  upstream?: UpstreamProxies | undefined;
  privateViaUpstream?: boolean | undefined;
  clock?: Clock | undefined;
  /** Credentials of the process, and the certificates that terminate TLS for their hosts. */
  credentials?: Omit<TlsTerminatorDeps, "outgoing" | "deadlines"> | undefined;
}

/** The network proxy of one process. It ends with the process. */
export class NetworkProxy {
  readonly #options: NetworkProxyOptions;
  readonly #closed = new AbortController();
  /** Accepted connections. */
  readonly #sockets = new Set<Socket>();
  /** Connections to destinations and upstream proxies. */
  readonly #outgoing = new Set<Socket>();
  readonly #servers: Server[] = [];
  readonly #deadlines: HeadDeadlines;
  readonly #http: HttpListener;
  readonly #socks: SocksListener;

  /** Throws the errors of Codex for an invalid config. */
  constructor(options: NetworkProxyOptions) {
    const { config, processId, lookup = lookupAddresses, decide, onDecision } = options;
    const { clock = systemClock } = options;
    requireValidConfig(config, processId);
    // A name may have an IPv4-mapped address.
    const isOwnListener = (address: string, port: number) => options.isOwnListener(normalizeHost(address), port);
    this.#options = options;
    this.#deadlines = new HeadDeadlines(clock);
    const judge = new RequestJudge({
      config,
      lookup,
      isOwnListener,
      decide,
      onDecision: (decision) => {
        if (!this.#closed.signal.aborted) onDecision?.(decision);
      },
      closed: this.#closed.signal,
      clock,
    });
    const outgoing = new Outgoing({
      lookup,
      isOwnListener,
      upstream: config.proxy.allowUpstreamProxy ? (options.upstream ?? upstreamProxiesFromEnv(process.env)) : null,
      privateViaUpstream: options.privateViaUpstream ?? false,
      onSocket: (socket) => {
        if (this.#closed.signal.aborted) socket.destroy();
        this.#outgoing.add(socket);
        socket.once("close", () => this.#outgoing.delete(socket));
      },
    });
    const connecting = { outgoing, deadlines: this.#deadlines };
    const terminator = options.credentials ? new TlsTerminator({ ...options.credentials, ...connecting }) : null;
    const credentials = options.credentials?.credentials ?? null;
    const deps = { ...connecting, judge, terminator, credentials };
    this.#http = new HttpListener(deps);
    this.#socks = new SocksListener(deps);
  }

  /** Serves an accepted connection to the HTTP listener. Its server must have `allowHalfOpen`. */
  acceptHttp(socket: Socket): void {
    if (this.#track(socket)) this.#http.accept(socket);
  }

  /** Serves an accepted connection to the SOCKS5 listener. Its server must have `allowHalfOpen`. */
  acceptSocks(socket: Socket): void {
    if (this.#track(socket)) this.#socks.accept(socket);
  }

  /** Binds the listeners to free loopback ports, for a process outside of a network sandbox. */
  async listen(): Promise<ProxyPorts> {
    const http = await this.#listen((socket) => this.acceptHttp(socket));
    const hasSocks = this.#options.config.proxy.enableSocks5;
    return { http, socks: hasSocks ? await this.#listen((socket) => this.acceptSocks(socket)) : null };
  }

  /** Closes the listeners and all connections, and denies open questions. */
  close(): void {
    this.#closed.abort();
    for (const server of this.#servers) server.close();
    for (const socket of [...this.#sockets, ...this.#outgoing]) socket.destroy();
  }

  #track(socket: Socket): boolean {
    if (this.#closed.signal.aborted || this.#sockets.size >= MAX_CONNECTIONS) {
      socket.resetAndDestroy();
      return false;
    }
    this.#sockets.add(socket);
    socket.on("error", () => undefined);
    socket.once("close", () => {
      this.#sockets.delete(socket);
      this.#deadlines.complete(socket);
    });
    socket.setNoDelay(true);
    return true;
  }

  #listen(accept: (socket: Socket) => void): Promise<number> {
    return new Promise((resolve, reject) => {
      const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
        socket.on("error", () => undefined);
        void this.#requireMember(socket).then((isMember) => {
          if (!isMember) {
            socket.resetAndDestroy();
            return;
          }
          accept(socket);
          socket.resume();
        });
      });
      server.once("error", reject);
      server.listen({ host: "127.0.0.1", port: 0, backlog: 1024 }, () => {
        server.removeListener("error", reject);
        // A connection that the system did not accept. Without a listener, the error would end the program.
        server.on("error", () => undefined);
        this.#servers.push(server);
        if (this.#closed.signal.aborted) server.close();
        resolve((server.address() as AddressInfo).port);
      });
    });
  }

  async #requireMember({ remotePort, localPort }: Socket): Promise<boolean> {
    const { isMember } = this.#options;
    if (isMember === undefined) return true;
    if (remotePort === undefined || localPort === undefined) return false;
    try {
      return await isMember({ peerPort: remotePort, localPort });
    } catch {
      return false;
    }
  }
}
