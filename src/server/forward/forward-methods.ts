import type { Clock, Timer } from "../../async/clock.ts";
import { ERRNO_MESSAGES } from "../../base/errno-messages.ts";
import { getErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { PeerAddress } from "../../base/peer-address.ts";
import { isLive } from "../../exec/backend/process-state.ts";
import { type ByteStream, joinStreams } from "../../forward/byte-stream.ts";
import { type ForwardAddress, formatAddress } from "../../forward/forward-address.ts";
import { forwardDenialReason } from "../../forward/forward-rules.ts";
import { invalidRequest, notFound, ProtocolError, RequestError } from "../../protocol/errors.ts";
import type { ErrorReason } from "../../protocol/exec-server-error.ts";
import { CONSOLE_FORWARD_HOST } from "../../protocol/forward-schemas.ts";
import type { MethodName, ServerNotificationParams } from "../../protocol/methods.ts";
import { type ConsoleAccess, connectConsole } from "../console/console-access.ts";
import type { ForwardService } from "../host-services.ts";
import type { ServerMetrics } from "../observability/server-metrics.ts";
import type { CallContext, Handlers } from "../rpc/handler-types.ts";
import type { Peer } from "../rpc/peer.ts";
import type { ServerConfig } from "../server-config.ts";
import type { ServerResources } from "../server-resources.ts";
import type { Session } from "../session/session.ts";
import { ForwardStream } from "./forward-stream.ts";

type ForwardMethod = Extract<MethodName, `forward/${string}`>;

/** Interval of port scans while a client watches ports. */
const PORT_SCAN_INTERVAL_MS = 250;

export interface ConnectionForwardsDeps {
  service: ForwardService | undefined;
  peer: Peer;
  session: () => Session;
  config: ServerConfig;
  resources: ServerResources;
  /** Id of the principal whose quotas count streams and listeners. */
  ownerId: string;
  clock: Clock;
  metrics: ServerMetrics | undefined;
  isSandboxedPeer: (peer: PeerAddress) => false | Promise<boolean>;
  /** Returns the server's console, or null if it has none. */
  console: () => ConsoleAccess | null;
}

/** The `forward/*` methods of one connection. Streams end with the connection; listeners belong to the session. */
export class ConnectionForwards {
  readonly #deps: ConnectionForwardsDeps;
  readonly #streams = new Map<string, ForwardStream>();
  readonly #acquireStream: () => () => void;
  readonly #accept = (listenId: string, stream: ByteStream, peer: string) => this.#onConnection(listenId, stream, peer);
  #acceptedStreams = 0;
  #portTimer: Timer | null = null;
  #reportedPorts = "[]";
  /** Number of `forward/watchPorts` calls so far. A scan that began before the latest call reports nothing. */
  #watches = 0;
  #isClosed = false;
  #hasOpened = false;

  constructor(deps: ConnectionForwardsDeps) {
    const { resources, config, ownerId } = deps;
    this.#deps = deps;
    this.#acquireStream = resources.forwardStreams.perConnection(config.caps.forwardStreams.perOwner, ownerId).enter;
  }

  readonly methods: Handlers<ForwardMethod> = {
    "forward/open": async ({ streamId, check, ...params }, context) => {
      const address = parseAddress("forward/open", params, check === true);
      if (address === null || check === true) {
        this.#requireAllowed(address);
        return {};
      }
      const connect = this.#connector(address, context);
      const stream = this.#newStream(streamId);
      try {
        const target = await connect();
        context.afterResponse(() => joinStreams(target, stream));
        return {};
      } catch (error) {
        stream.discard(null);
        throw error;
      }
    },
    "forward/write": async ({ streamId, chunk }) => {
      await this.#stream(streamId).receive(chunk);
      if (this.#deps.metrics) this.#deps.metrics.forwardedBytes += chunk.length;
      return {};
    },
    "forward/end": async ({ streamId }) => {
      this.#stream(streamId).receiveEnd();
      return {};
    },
    // No-op for an unknown stream: it may have closed a moment ago.
    "forward/close": async ({ streamId }) => {
      this.#streams.get(streamId)?.discard("the client closed it");
      return {};
    },
    "forward/listen": async ({ listenId, host, port, path }) => {
      const params = path === undefined ? { host: host ?? "127.0.0.1", port } : { host, port, path };
      const address = parseAddress("forward/listen", params, false);
      const service = this.#requireAllowed(address);
      const { resources, session, ownerId } = this.#deps;
      const { listeners } = session();
      const leave = resources.forwardListeners.acquire(ownerId);
      try {
        const bound = { port: "path" in address ? null : address.port };
        bound.port = await listeners.listen(listenId, async (onStream) => {
          const listener = await service.listen(address, (stream, peerName) => {
            const { port: localPort } = bound;
            // The peer of a Unix socket is unknown, and counts as sandboxed while a sandboxed process has network access.
            const peer: PeerAddress = localPort === null ? { type: "unknown" } : { type: "tcp", peerName, localPort };
            this.#unlessSandboxed(peer, stream, () => onStream(stream, peerName));
          });
          bound.port = listener.port;
          return {
            port: listener.port,
            close: () => {
              leave();
              listener.close();
            },
          };
        });
        return { port: bound.port ?? undefined };
      } catch (error) {
        leave();
        throw toConnectError(error, formatAddress(address));
      }
    },
    "forward/unlisten": async ({ listenId }) => {
      this.#deps.session().listeners.unlisten(listenId);
      return {};
    },
    "forward/watchPorts": async ({ watch }, { afterResponse }) => {
      if (watch) this.#requireAllowed({ host: "127.0.0.1", port: 0 });
      this.#portTimer?.cancel();
      this.#portTimer = null;
      this.#reportedPorts = "[]";
      this.#watches++;
      if (watch) afterResponse(() => void this.#pollPorts());
      return {};
    },
  };

  /** Called when the connection may receive notifications. */
  ready(): void {
    this.#deps.session().listeners.attach(this.#accept);
  }

  /** Records bytes that the client has processed. Ignores a closed stream: the client may not know yet. */
  ack(streamId: string, bytes: number): void {
    if (this.#deps.config.allowForward === null && !this.#hasOpened)
      throw new ProtocolError("unexpected notification method: forward/ack");
    this.#streams.get(streamId)?.onAck(bytes);
    if (this.#deps.metrics) this.#deps.metrics.forwardedBytes += bytes;
  }

  close(session: Session | null): void {
    this.#isClosed = true;
    this.#portTimer?.cancel();
    session?.listeners.detach(this.#accept);
    for (const stream of [...this.#streams.values()]) stream.discard("the client's connection was lost");
  }

  /** Returns the function that connects to the target. Throws if the target is not allowed. */
  #connector(address: ForwardAddress, context: CallContext): () => Promise<ByteStream> {
    if ("path" in address || address.host !== CONSOLE_FORWARD_HOST || address.port !== 0) {
      const service = this.#requireAllowed(address);
      return () => connectTarget(service, address, context);
    }
    const { service, console } = this.#deps;
    if (!service) throw invalidRequest("forwarding is not supported on this host");
    return () => connectConsole(console(), service, context.disconnected);
  }

  /** Throws if the address is not allowed; for null, if no address is. */
  #requireAllowed(address: ForwardAddress | null): ForwardService {
    const { service, config } = this.#deps;
    const denial = forwardDenialReason(config.allowForward, address);
    if (denial !== null) throw invalidRequest(denial, { reason: "targetNotAllowed" });
    if (!service) throw invalidRequest("forwarding is not supported on this host");
    return service;
  }

  #newStream(streamId: string): ForwardStream {
    if (this.#streams.has(streamId)) throw invalidRequest(`stream ${streamId} already exists`);
    const { metrics, peer } = this.#deps;
    const leave = this.#acquireStream();
    const stream: ForwardStream = new ForwardStream(streamId, peer, () => {
      leave();
      if (metrics) metrics.forwardStreams--;
      this.#streams.delete(streamId);
    });
    if (metrics) metrics.forwardStreams++;
    this.#streams.set(streamId, stream);
    this.#hasOpened = true;
    return stream;
  }

  #stream(streamId: string): ForwardStream {
    const stream = this.#streams.get(streamId);
    if (!stream) throw notFound(`unknown stream ${streamId}`);
    return stream;
  }

  #onConnection(listenId: string, incoming: ByteStream, peer: string): void {
    const streamId = `in-${++this.#acceptedStreams}`;
    try {
      const stream = this.#newStream(streamId);
      this.#deps.peer.notify({ method: "forward/accepted", params: { listenId, streamId, peer } });
      joinStreams(incoming, stream);
    } catch (error) {
      incoming.close(errorMessage(error));
    }
  }

  /** Closes connections from sandboxed processes, because the listener forwards them to the client's host. */
  #unlessSandboxed(address: PeerAddress, stream: ByteStream, accept: () => void): void {
    const isSandboxed = this.#deps.isSandboxedPeer(address);
    if (isSandboxed === false) accept();
    else
      void isSandboxed.then(
        (inSandbox) => (inSandbox ? stream.close("connections from sandboxed processes are refused") : accept()),
        () => stream.close("cannot determine whether the peer is sandboxed"),
      );
  }

  async #pollPorts(): Promise<void> {
    const { service, session, peer, clock, config } = this.#deps;
    const watch = this.#watches;
    const own = session()
      .ownProcesses()
      .map(({ process }) => process);
    const processes = own.filter(isLive);
    const leaders = processes.flatMap(({ pid }) => (pid === null ? [] : [pid]));
    // A scan fails while no descriptor is free. It changes nothing, and the next scan may succeed.
    const found = await service?.listeningPorts(leaders).catch(() => null);
    if (this.#isClosed || watch !== this.#watches) return;
    this.#portTimer = clock.after(PORT_SCAN_INTERVAL_MS, () => void this.#pollPorts(), { keepAlive: false });
    if (!found) return;
    const ports: ServerNotificationParams<"forward/ports">["ports"] = [];
    for (const { port, host, leader } of found) {
      const owner = processes.find(({ pid }) => pid === leader);
      if (owner && forwardDenialReason(config.allowForward, { host, port }) === null)
        ports.push({ port, host, processId: owner.processId });
    }
    ports.sort((a, b) => a.port - b.port);
    const text = JSON.stringify(ports);
    if (text !== this.#reportedPorts) peer.notify({ method: "forward/ports", params: { ports } });
    this.#reportedPorts = text;
  }
}

/** Connects to a target. `localhost` means the loopback addresses of this host and is never resolved. */
async function connectTarget(
  service: ForwardService,
  target: ForwardAddress,
  { disconnected }: CallContext,
): Promise<ByteStream> {
  const isLocalhost = "host" in target && target.host.toLowerCase() === "localhost";
  const addresses = isLocalhost ? ["127.0.0.1", "::1"].map((host) => ({ ...target, host })) : [target];
  let failure: unknown;
  for (const address of addresses) {
    try {
      return await service.connect(address, disconnected);
    } catch (error) {
      // Report the error of the first address, which users expect.
      failure ??= error;
    }
  }
  throw toConnectError(failure, formatAddress(target));
}

/** Returns the address of a request; null if it has none and `isOptional` is set. */
function parseAddress(method: string, params: AddressParams, isOptional: false): ForwardAddress;
function parseAddress(method: string, params: AddressParams, isOptional: boolean): ForwardAddress | null;
function parseAddress(method: string, { host, port, path }: AddressParams, isOptional: boolean): ForwardAddress | null {
  if (path !== undefined && host === undefined && port === undefined) {
    if (path.startsWith("/") && !path.includes("\0")) return { path };
    throw invalidRequest(`path \`${path}\` must be absolute`);
  }
  if (path === undefined && host !== undefined && port !== undefined) return { host, port };
  if (isOptional && path === undefined && host === undefined && port === undefined) return null;
  throw invalidRequest(`${method} requires \`host\` and \`port\`, or \`path\``);
}

interface AddressParams {
  host?: string | undefined;
  port?: number | undefined;
  path?: string | undefined;
}

function toConnectError(error: unknown, target: string): RequestError {
  if (error instanceof RequestError) return error;
  const code = getErrorCode(error) ?? "";
  const reason = REASON_BY_CODE[code];
  return invalidRequest(`${target}: ${ERRNO_MESSAGES[code] ?? errorMessage(error)}`, { cause: error, reason });
}

/** Failures that SOCKS5 distinguishes. */
const REASON_BY_CODE: Readonly<Record<string, ErrorReason>> = {
  ECONNREFUSED: "connectionRefused",
  ENETUNREACH: "networkUnreachable",
  EHOSTUNREACH: "hostUnreachable",
  ETIMEDOUT: "hostUnreachable",
  ENOTFOUND: "hostUnreachable",
  EAI_AGAIN: "hostUnreachable",
};
