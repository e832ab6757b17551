import type { Clock, Timer } from "../../async/clock.ts";
import { ERRNO_MESSAGES } from "../../base/errno-messages.ts";
import { getErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import { type ByteStream, joinStreams } from "../../forward/byte-stream.ts";
import { forwardDenialReason, isLoopbackHost } from "../../forward/forward-rules.ts";
import { invalidRequest, notFound, ProtocolError, RequestError } from "../../protocol/errors.ts";
import type { MethodName, ServerNotificationParams } from "../../protocol/methods.ts";
import type { ForwardService, PeerAddress } from "../host-services.ts";
import type { AuditEvent } from "../observability/audit-log.ts";
import type { ServerMetrics } from "../observability/server-metrics.ts";
import type { CallContext, Handlers } from "../rpc/handler-types.ts";
import type { Peer } from "../rpc/peer.ts";
import type { ServerConfig } from "../server-config.ts";
import type { ServerResources } from "../server-resources.ts";
import { isLive } from "../session/process-state.ts";
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
  clock: Clock;
  metrics: ServerMetrics | undefined;
  audit: ((event: AuditEvent) => void) | undefined;
  isSandboxedPeer: (peer: PeerAddress) => false | Promise<boolean>;
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

  constructor(deps: ConnectionForwardsDeps) {
    this.#deps = deps;
    this.#acquireStream = deps.resources.forwardStreams.perConnection(deps.config.caps.forwardStreams.perOwner).enter;
  }

  readonly methods: Handlers<ForwardMethod> = {
    "forward/open": async ({ streamId, host, port }, context) => {
      const service = this.#requireAllowed(host, port);
      const stream = this.#newStream(streamId);
      try {
        const target = await connectTarget(service, host, port, context);
        this.#deps.audit?.({ event: "forward", target: `${host}:${port}` });
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
    "forward/listen": async ({ listenId, host = "127.0.0.1", port }) => {
      const service = this.#requireAllowed(host, port);
      const { resources, session } = this.#deps;
      const { listeners } = session();
      const leave = resources.forwardListeners.acquire();
      try {
        const bound = { port };
        bound.port = await listeners.listen(listenId, async (onStream) => {
          const listener = await service.listen(host, port, (stream, peerName) =>
            this.#unlessSandboxed({ peerName, localPort: bound.port }, stream, () => onStream(stream, peerName)),
          );
          bound.port = listener.port;
          return {
            port: listener.port,
            close: () => {
              leave();
              listener.close();
            },
          };
        });
        this.#deps.audit?.({ event: "forward-listen", address: `${host}:${bound.port}` });
        return { port: bound.port };
      } catch (error) {
        leave();
        throw toConnectError(error, `${host}:${port}`);
      }
    },
    "forward/unlisten": async ({ listenId }) => {
      this.#deps.session().listeners.unlisten(listenId);
      return {};
    },
    "forward/watchPorts": async ({ watch }, { afterResponse }) => {
      if (watch) this.#requireAllowed("127.0.0.1", 0);
      this.#portTimer?.cancel();
      this.#portTimer = null;
      this.#reportedPorts = "[]";
      this.#watches++;
      // A host without support fails in the first scan, not in this request.
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
    if (this.#deps.config.allowForward === null) throw new ProtocolError("unexpected notification method: forward/ack");
    this.#streams.get(streamId)?.onAck(bytes);
    if (this.#deps.metrics) this.#deps.metrics.forwardedBytes += bytes;
  }

  close(session: Session | null): void {
    this.#isClosed = true;
    this.#portTimer?.cancel();
    session?.listeners.detach(this.#accept);
    for (const stream of [...this.#streams.values()]) stream.discard("the client's connection was lost");
  }

  #requireAllowed(host: string, port: number): ForwardService {
    const { service, config, audit } = this.#deps;
    const denial = forwardDenialReason(config.allowForward, host, port);
    if (denial !== null) {
      audit?.({ event: "forward-refused", target: `${host}:${port}` });
      throw invalidRequest(denial);
    }
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

  /** Closes connections from sandboxed processes, because the listener forwards them to the client's machine. */
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
    const found = (await service?.listeningPorts(leaders)) ?? [];
    if (this.#isClosed || watch !== this.#watches) return;
    const ports: ServerNotificationParams<"forward/ports">["ports"] = [];
    for (const { port, host, leader } of found) {
      const owner = processes.find(({ pid }) => pid === leader);
      if (owner && forwardDenialReason(config.allowForward, host, port) === null)
        ports.push({ port, host, processId: owner.processId });
    }
    ports.sort((a, b) => a.port - b.port);
    const text = JSON.stringify(ports);
    if (text !== this.#reportedPorts) peer.notify({ method: "forward/ports", params: { ports } });
    this.#reportedPorts = text;
    this.#portTimer = clock.after(PORT_SCAN_INTERVAL_MS, () => void this.#pollPorts(), { keepAlive: false });
  }
}

/** Connects to a target. `localhost` means the loopback addresses of this machine and is never resolved. */
async function connectTarget(
  service: ForwardService,
  host: string,
  port: number,
  { disconnected }: CallContext,
): Promise<ByteStream> {
  const addresses = isLoopbackHost(host) && host.toLowerCase() === "localhost" ? ["127.0.0.1", "::1"] : [host];
  let failure: unknown;
  for (const address of addresses) {
    try {
      return await service.connect(address, port, disconnected);
    } catch (error) {
      // Report the error of the first address, which users expect.
      failure ??= error;
    }
  }
  throw toConnectError(failure, `${host}:${port}`);
}

function toConnectError(error: unknown, target: string): RequestError {
  if (error instanceof RequestError) return error;
  const code = getErrorCode(error) ?? "";
  return invalidRequest(`${target}: ${ERRNO_MESSAGES[code] ?? errorMessage(error)}`, { cause: error });
}
