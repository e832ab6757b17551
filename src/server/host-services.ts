import type { Clock } from "../async/clock.ts";
import type { ByteLedger } from "../async/memory-budget.ts";
import type { Wire } from "../connection/wire-parts.ts";
import type { HostBackend } from "../exec/host-backend.ts";
import type { FileSystem } from "../files/file-system.ts";
import type { ByteStream } from "../forward/byte-stream.ts";
import type { HttpAnswer, HttpBodyDelta, HttpRequestParams } from "../protocol/http-schemas.ts";
import type { EnvironmentInfo, ParamsOf, ResultOf } from "../protocol/methods.ts";
import type { AuditLog } from "./observability/audit-log.ts";
import type { ServerFigures } from "./observability/server-metrics.ts";
import type { Tracing } from "./observability/tracing.ts";
import type { FileMethod } from "./rpc/file-methods.ts";

/** Everything of its host that a server uses. It is given these; it imports none of them. */
export interface HostServices {
  backend: HostBackend;
  /** What its connections go by; Node's own sockets when there is nothing better. */
  wire?: Wire | undefined;
  /** Asked for by the first connection that uses files. */
  files: () => Promise<FileSystem>;
  /** Files behind walls; without it every sandbox intent of `fs/*` is refused. */
  walledFiles?: WalledFileServers;
  /** Whether the peer at this address of this machine is behind walls raised here; false at once when no process can be. */
  isWalledPeer?: (peer: PeerAddress) => false | Promise<boolean>;
  http: HttpService;
  /** TCP of this machine; without it `forward/*` is refused. */
  forward?: ForwardService;
  environment: EnvironmentService;
  clock?: Clock;
  /** What the backend keeps is counted here; everything else a server keeps is counted in the same one. */
  memory?: ByteLedger;
  log?: ServerLog;
  /** Where everything done to a process is written down; absent: nowhere. */
  audit?: AuditLog | undefined;
  /** Counts for `/metrics`; absent: nothing is counted. */
  figures?: ServerFigures | undefined;
  /** Makes spans of requests; absent: none are made. */
  tracing?: Tracing | undefined;
  newId?: () => string;
  /** Names this server among those that were here before and come after it; made up by default. */
  generation?: string | undefined;
  /** For the public names of processes; the system's generator by default. */
  randomBytes?: (count: number) => Uint8Array;
}

/** Both ends of a TCP connection that came in. */
export interface PeerAddress {
  /** `127.0.0.1:5000`, or `::1:5000`. */
  peerName: string;
  /** 0: not TCP, but a unix socket. */
  ownPort: number;
}

/** Gives the files that can be seen and changed from inside the walls of a sandbox intent. */
export interface WalledFileServers {
  /** Rejects with a RequestError when the intent cannot be enforced here. A scope's roots lead where they first led. */
  behind(intent: unknown, scope: object): Promise<WalledFiles>;
  close(): Promise<void>;
}

export interface WalledFiles {
  call<M extends FileMethod | "capabilityRoots/discoverV1">(
    method: M,
    params: ParamsOf<M>,
  ): Promise<ResultOf<M>>;
}

/** The HTTP requests of one connection. */
export interface HttpService {
  /** `enter` may refuse one more request by throwing, and gives how to leave. */
  open(onDelta: (delta: HttpBodyDelta) => Promise<void>, enter: () => () => void): HttpRequests;
}

export interface HttpRequests {
  /** `admit` is asked with each piece of a body that is not streamed: false when there is no memory for it. */
  request(params: HttpRequestParams, admit: (bytes: number) => boolean): Promise<HttpAnswer>;
  close(): void;
}

/** TCP connections from and to this machine. */
export interface ForwardService {
  /** Rejects with the system's error. */
  connect(host: string, port: number, signal: AbortSignal): Promise<ByteStream>;
  /** Port 0 takes a free one. `peer` is who connected, as `127.0.0.1:5000`. */
  listen(
    host: string,
    port: number,
    onStream: (stream: ByteStream, peer: string) => void,
  ): Promise<{ readonly port: number; close(): void }>;
  /** The ports that the trees of these processes listen on, each with the leader of its tree. */
  listeningPorts(leaders: readonly number[]): Promise<{ port: number; host: string; leader: number }[]>;
}

export interface EnvironmentService {
  /** Part of every handshake, so it is cheap. */
  info(): EnvironmentInfo;
  /** The same and what takes a moment to find out. */
  describe(): Promise<EnvironmentInfo>;
  readConfig(params: ParamsOf<"environmentConfig/read">): Promise<ResultOf<"environmentConfig/read">>;
  discoverRoots(
    params: ParamsOf<"capabilityRoots/discoverV1">,
  ): Promise<ResultOf<"capabilityRoots/discoverV1">>;
  discover(params: ParamsOf<"capabilities/discoverV2">): Promise<ResultOf<"capabilities/discoverV2">>;
}

export type LogLevel = "debug" | "info" | "warn" | "error";

export type ServerLog = (level: LogLevel, message: string, fields?: Record<string, unknown>) => void;
