import type { Clock, Timer } from "../../async/clock.ts";
import { SYSTEM_ERROR_TEXTS } from "../../base/errno-messages.ts";
import { messageOf } from "../../base/error-message.ts";
import { type ByteStream, joinStreams } from "../../forward/byte-stream.ts";
import { isLoopback, whyNotForwarded } from "../../forward/forward-rules.ts";
import { invalidRequest, notFound, ProtocolError, RequestError } from "../../protocol/errors.ts";
import type { ServerNotificationParams } from "../../protocol/methods.ts";
import type { CallContext, Handlers } from "../handlers.ts";
import type { ForwardService, PeerAddress } from "../host-services.ts";
import type { AuditEvent } from "../observability/audit-log.ts";
import type { ServerFigures } from "../observability/server-metrics.ts";
import type { Peer } from "../rpc/peer.ts";
import type { ServerConfig } from "../server-config.ts";
import type { SharedRoom } from "../server-resources.ts";
import type { Session } from "../session.ts";
import { ForwardStream } from "./forward-stream.ts";

export type ForwardMethod =
  | "forward/open"
  | "forward/write"
  | "forward/end"
  | "forward/close"
  | "forward/listen"
  | "forward/unlisten"
  | "forward/watchPorts";

/** Between two looks at the ports of a session's processes, while somebody wants to know. */
const PORTS_EVERY_MS = 250;

export interface ConnectionForwardsDeps {
  service: ForwardService | undefined;
  peer: Peer;
  session: () => Session;
  config: ServerConfig;
  room: SharedRoom;
  clock: Clock;
  figures: ServerFigures | undefined;
  audit: ((event: AuditEvent) => void) | undefined;
  isWalledPeer: (peer: PeerAddress) => false | Promise<boolean>;
}

/** `forward/*` of one connection: its streams end with it; listeners are the session's. */
export class ConnectionForwards {
  readonly #deps: ConnectionForwardsDeps;
  readonly #streams = new Map<string, ForwardStream>();
  readonly #enter: () => () => void;
  readonly #take = (listenId: string, stream: ByteStream, peer: string) => this.#came(listenId, stream, peer);
  #cameIn = 0;
  #portTimer: Timer | null = null;
  #toldPorts = "[]";
  /** How often watching was begun or ended: what an earlier one still looks for is not told. */
  #watches = 0;
  #isOver = false;

  constructor(deps: ConnectionForwardsDeps) {
    this.#deps = deps;
    this.#enter = deps.room.forwardStreams.ofConnection(deps.config.caps.forwardStreams.each).enter;
  }

  readonly methods: Handlers<ForwardMethod> = {
    "forward/open": async ({ streamId, host, port }, context) => {
      const service = this.#allowed(host, port);
      const stream = this.#newStream(streamId);
      try {
        const target = await connected(service, host, port, context);
        this.#deps.audit?.({ event: "forward", target: `${host}:${port}` });
        context.afterAnswer(() => joinStreams(target, stream));
        return {};
      } catch (error) {
        stream.abandon(null);
        throw error;
      }
    },
    "forward/write": async ({ streamId, chunk }) => {
      await this.#stream(streamId).receive(chunk);
      if (this.#deps.figures) this.#deps.figures.forwardedBytes += chunk.length;
      return {};
    },
    "forward/end": async ({ streamId }) => {
      this.#stream(streamId).receiveEnd();
      return {};
    },
    // Fine for one that is not there: it may have closed by itself a moment ago.
    "forward/close": async ({ streamId }) => {
      this.#streams.get(streamId)?.abandon("the client closed it");
      return {};
    },
    "forward/listen": async ({ listenId, host = "127.0.0.1", port }) => {
      const service = this.#allowed(host, port);
      const { room, session } = this.#deps;
      const { listeners } = session();
      const leave = room.forwardListeners.enter();
      try {
        const own = { port };
        own.port = await listeners.listen(listenId, async (onStream) => {
          const listener = await service.listen(host, port, (stream, peerName) =>
            this.#ifNotWalled({ peerName, ownPort: own.port }, stream, () => onStream(stream, peerName)),
          );
          own.port = listener.port;
          return {
            port: listener.port,
            close: () => {
              leave();
              listener.close();
            },
          };
        });
        this.#deps.audit?.({ event: "forward-listen", address: `${host}:${own.port}` });
        return { port: own.port };
      } catch (error) {
        leave();
        throw refusal(error, `${host}:${port}`);
      }
    },
    "forward/unlisten": async ({ listenId }) => {
      this.#deps.session().listeners.unlisten(listenId);
      return {};
    },
    "forward/watchPorts": async ({ watch }, { afterAnswer }) => {
      if (watch) this.#allowed("127.0.0.1", 0);
      this.#portTimer?.cancel();
      this.#portTimer = null;
      this.#toldPorts = "[]";
      this.#watches++;
      // A host that cannot look is told by the first look's failure, which is none of the client's.
      if (watch) afterAnswer(() => void this.#lookAtPorts());
      return {};
    },
  };

  /** The connection may be told from now on. */
  ready(): void {
    this.#deps.session().listeners.attach(this.#take);
  }

  /** The client has dealt with so many bytes of a stream; one that has just closed is no mistake of its. */
  ack(streamId: string, bytes: number): void {
    if (this.#deps.config.allowForward === null)
      throw new ProtocolError("unexpected notification method: forward/ack");
    this.#streams.get(streamId)?.confirm(bytes);
    if (this.#deps.figures) this.#deps.figures.forwardedBytes += bytes;
  }

  close(session: Session | null): void {
    this.#isOver = true;
    this.#portTimer?.cancel();
    session?.listeners.detach(this.#take);
    for (const stream of [...this.#streams.values()]) stream.abandon("the client's connection was lost");
  }

  #allowed(host: string, port: number): ForwardService {
    const { service, config, audit } = this.#deps;
    const why = whyNotForwarded(config.allowForward, host, port);
    if (why !== null) audit?.({ event: "forward-refused", target: `${host}:${port}` });
    if (why !== null) throw invalidRequest(why);
    if (!service) throw invalidRequest("forwarding is not possible on this host");
    return service;
  }

  #newStream(streamId: string): ForwardStream {
    if (this.#streams.has(streamId)) throw invalidRequest(`stream ${streamId} already exists`);
    const { figures, peer } = this.#deps;
    const leave = this.#enter();
    const stream: ForwardStream = new ForwardStream(streamId, peer, () => {
      leave();
      if (figures) figures.forwardStreams--;
      this.#streams.delete(streamId);
    });
    if (figures) figures.forwardStreams++;
    this.#streams.set(streamId, stream);
    return stream;
  }

  #stream(streamId: string): ForwardStream {
    const stream = this.#streams.get(streamId);
    if (!stream) throw notFound(`unknown stream ${streamId}`);
    return stream;
  }

  #came(listenId: string, incoming: ByteStream, peer: string): void {
    const streamId = `in-${++this.#cameIn}`;
    try {
      const stream = this.#newStream(streamId);
      this.#deps.peer.notify({ method: "forward/accepted", params: { listenId, streamId, peer } });
      joinStreams(incoming, stream);
    } catch (error) {
      incoming.close(messageOf(error));
    }
  }

  /** What a listener leads to is the client's machine: nothing behind walls may get there. */
  #ifNotWalled(address: PeerAddress, stream: ByteStream, take: () => void): void {
    const walled = this.#deps.isWalledPeer(address);
    if (walled === false) take();
    else
      void walled.then(
        (isWalled) => (isWalled ? stream.close("it comes from behind walls") : take()),
        () => stream.close("nobody knows where it comes from"),
      );
  }

  async #lookAtPorts(): Promise<void> {
    const { service, session, peer, clock, config } = this.#deps;
    const watch = this.#watches;
    const processes = session().ownProcesses();
    const leaders = processes.flatMap(({ pid }) => (pid === null ? [] : [pid]));
    const found = (await service?.listeningPorts(leaders)) ?? [];
    if (this.#isOver || watch !== this.#watches) return;
    const ports: ServerNotificationParams<"forward/ports">["ports"] = [];
    for (const { port, host, leader } of found) {
      const owner = processes.find(({ pid }) => pid === leader);
      if (owner && whyNotForwarded(config.allowForward, host, port) === null)
        ports.push({ port, host, processId: owner.processId });
    }
    ports.sort((one, other) => one.port - other.port);
    const text = JSON.stringify(ports);
    if (text !== this.#toldPorts) peer.notify({ method: "forward/ports", params: { ports } });
    this.#toldPorts = text;
    this.#portTimer = clock.after(PORTS_EVERY_MS, () => void this.#lookAtPorts(), { keepAlive: false });
  }
}

/** `localhost` is never asked of a resolver: it is one address of this machine, or the other. */
async function connected(
  service: ForwardService,
  host: string,
  port: number,
  { gone }: CallContext,
): Promise<ByteStream> {
  const addresses = isLoopback(host) && host.toLowerCase() === "localhost" ? ["127.0.0.1", "::1"] : [host];
  let failure: unknown;
  for (const address of addresses) {
    try {
      return await service.connect(address, port, gone);
    } catch (error) {
      // The first one is the one that a person expects to read.
      failure ??= error;
    }
  }
  throw refusal(failure, `${host}:${port}`);
}

function refusal(error: unknown, target: string): RequestError {
  if (error instanceof RequestError) return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return invalidRequest(`${target}: ${SYSTEM_ERROR_TEXTS[code] ?? messageOf(error)}`, { cause: error });
}
