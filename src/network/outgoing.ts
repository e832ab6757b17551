import { isIP, type NetConnectOpts, type Socket } from "node:net";
import { connect as connectTls, type SecureContext } from "node:tls";
import { onAbort } from "../async/abort.ts";
import { connectSocket } from "../forward/connect-socket.ts";
import { isLoopbackAddress, isNonPublicAddress } from "./address-ranges.ts";
import type { LookupAddresses } from "./name-lookup.ts";
import type { Allowed } from "./request-judge.ts";
import type { UpstreamProxies, UpstreamProxy } from "./upstream-proxy.ts";
import { openUpstreamTunnel } from "./upstream-proxy.ts";

/** A destination accepts within this time. */
const CONNECT_TIMEOUT_MS = 30_000;
/** Cause in the error message of a connection after an abort. */
const ABORT_CAUSE = "the requester disconnected";

/** The connection would reach a listener of this server. */
export class OwnListenerError extends Error {
  readonly host: string;
  readonly port: number;

  constructor(host: string, port: number) {
    super(`connect ${host}:${port}: a listener of this server`);
    this.host = host;
    this.port = port;
  }
}

export interface OutgoingDeps {
  lookup: LookupAddresses;
  isOwnListener: (address: string, port: number) => boolean;
  /** Null if the policy does not permit an upstream proxy. */
  upstream: UpstreamProxies | null;
  /** Private addresses use the upstream proxy too. */
  privateViaUpstream: boolean;
  /** Called for every new connection. */
  onSocket: (socket: Socket) => void;
}

/** Connects to the destinations of allowed requests, directly or through the upstream proxy. */
export class Outgoing {
  readonly #deps: OutgoingDeps;

  constructor(deps: OutgoingDeps) {
    this.#deps = deps;
  }

  /** Returns the upstream proxy for this destination; null for a direct connection. */
  upstreamFor(host: string, kind: "http" | "tunnel"): UpstreamProxy | null {
    const { upstream, privateViaUpstream } = this.#deps;
    const proxy = upstream?.[kind] ?? null;
    if (proxy === null || host === "localhost") return null;
    if (isIP(host) === 0 || !isNonPublicAddress(host)) return proxy;
    return privateViaUpstream && !isLoopbackAddress(host) ? proxy : null;
  }

  /** Connects to the checked addresses. A host whose addresses were not checked is looked up now. */
  async connect({ host, port, addresses }: Allowed, signal: AbortSignal): Promise<Socket> {
    const { lookup, isOwnListener } = this.#deps;
    const found = addresses ?? (await lookup(host));
    if (found.length === 0) throw new Error(`connect ${host}:${port}: no address`);
    if (found.some((address) => isOwnListener(address, port))) throw new OwnListenerError(host, port);
    return this.#open(found, port, signal);
  }

  /** Opens a tunnel to the destination, through the upstream proxy if there is one. */
  async tunnel(target: Allowed, signal: AbortSignal): Promise<Socket> {
    const proxy = this.upstreamFor(target.host, "tunnel");
    if (proxy === null) return this.connect(target, signal);
    const socket = await this.connectToProxy(proxy, signal);
    const stopListening = onAbort(signal, () => socket.destroy());
    return openUpstreamTunnel(proxy, socket, target).finally(stopListening);
  }

  /** The operator chose the proxy, so its address is not checked. */
  async connectToProxy({ host, port }: UpstreamProxy, signal: AbortSignal): Promise<Socket> {
    const addresses = await this.#deps.lookup(host);
    if (addresses.length === 0) throw new Error(`connect ${host}:${port}: the upstream proxy has no address`);
    return this.#open(addresses, port, signal);
  }

  async #open(addresses: readonly string[], port: number, signal: AbortSignal): Promise<Socket> {
    const socket = await openSocket(addresses, port, signal);
    this.#deps.onSocket(socket);
    return socket;
  }

  /** Opens a TLS connection to the destination. `secureContext` has the trusted certificates; default: those of Node. */
  async tls(target: Allowed, signal: AbortSignal, secureContext?: SecureContext): Promise<Socket> {
    const socket = await this.tunnel(target, signal);
    return new Promise((resolve, reject) => {
      const servername = isIP(target.host) > 0 ? "" : target.host;
      const secure = connectTls({
        ...{ socket, servername, host: target.host, secureContext },
        ALPNProtocols: ["http/1.1"],
      });
      const stopListening = onAbort(signal, () => secure.destroy(new Error(ABORT_CAUSE)));
      secure.once("secureConnect", () => {
        stopListening();
        resolve(secure);
      });
      secure.once("error", (error) => {
        stopListening();
        socket.destroy();
        reject(error);
      });
    });
  }
}

/** Connects to the first address that accepts. */
function openSocket(addresses: readonly string[], port: number, signal: AbortSignal): Promise<Socket> {
  const [first = ""] = addresses;
  const entries = addresses.map((address) => ({ address, family: isIP(address) }));
  const address: NetConnectOpts = {
    host: addresses.length === 1 ? first : "checked.invalid",
    port,
    // Replaces the resolver, so that only checked addresses are used.
    lookup: (_host, _options, callback) => callback(null, entries),
    autoSelectFamily: addresses.length > 1,
  };
  const label = `${first}:${port}`;
  return connectSocket(address, { label, timeoutMs: CONNECT_TIMEOUT_MS, signal, abortCause: ABORT_CAUSE });
}
