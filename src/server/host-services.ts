import type { Clock } from "../async/clock.ts";
import type { MemoryBudget } from "../async/memory-budget.ts";
import type { PeerAddress } from "../base/peer-address.ts";
import type { SocketProvider } from "../connection/socket-provider.ts";
import type { HostBackend } from "../exec/backend/host-backend.ts";
import type { PrincipalMemories } from "../exec/log/principal-memory.ts";
import type { FileSystem } from "../files/file-system.ts";
import type { ByteStream } from "../forward/byte-stream.ts";
import type { ForwardAddress } from "../forward/forward-address.ts";
import type { HttpBodyDelta, HttpRequestParams, HttpResult } from "../protocol/http-schemas.ts";
import type { EnvironmentInfo, ParamsOf, ResultOf } from "../protocol/methods.ts";
import type { AuditLog } from "./audit/audit-log.ts";
import type { ServerMetrics } from "./observability/server-metrics.ts";
import type { Tracing } from "./observability/tracing.ts";
import type { FileMethod } from "./rpc/file-methods.ts";

/** Host dependencies of a server. The server receives them and imports no implementation. */
export interface HostServices {
  backend: HostBackend;
  /** Creates and accepts sockets. Default: Node's own sockets. */
  sockets?: SocketProvider | undefined;
  /** Called by the first connection that uses files. */
  files: () => Promise<FileSystem>;
  /** File access inside a sandbox. If absent, the server rejects every sandbox request of `fs/*`. */
  sandboxedFiles?: SandboxedFileServers;
  /** Reports whether a local peer is a sandboxed process of this server; false at once if there is none. */
  isSandboxedPeer?: (peer: PeerAddress) => false | Promise<boolean>;
  http: HttpService;
  /** TCP access to this host. If absent, the server rejects `forward/*`. */
  forward?: ForwardService;
  environment: EnvironmentService;
  clock?: Clock;
  /** Memory budget that the backend charges. The server charges its own memory to the same budget. */
  memory?: MemoryBudget;
  /** Divides the memory between principals. Absent: each principal may use all of it. */
  principalMemories?: PrincipalMemories | undefined;
  log?: ServerLog;
  /** Audit log. If absent, actions are not logged. */
  audit?: AuditLog | undefined;
  /** Metrics. If absent, nothing is counted. */
  metrics?: ServerMetrics | undefined;
  /** Creates spans of requests. If absent, there are no spans. */
  tracing?: Tracing | undefined;
  newId?: () => string;
  /** Generation of this server. Default: a new one. */
  generation?: string | undefined;
  /** Random source for process handles. Default: the system's generator. */
  randomBytes?: (count: number) => Uint8Array;
}

/** Provides access to files from inside the sandbox of a request. */
export interface SandboxedFileServers {
  /** Rejects if the sandbox request cannot be enforced. Within a scope, each root keeps the directory of its first use. */
  forSandbox(request: unknown, scope: object): Promise<SandboxedFileSystem>;
  /** Provides access to the files below these directories only, also through symbolic links. Rejects if it cannot. */
  forRoots(roots: readonly string[], scope: object): Promise<SandboxedFileSystem>;
  close(): Promise<void>;
}

export interface SandboxedFileSystem {
  call<M extends FileMethod | "capabilityRoots/discoverV1">(method: M, params: ParamsOf<M>): Promise<ResultOf<M>>;
}

/** HTTP requests of the connections. */
export interface HttpService {
  /** Opens the requests of one connection. `enter` throws at the limit, or returns the function that releases the slot. */
  open(onDelta: (delta: HttpBodyDelta) => Promise<void>, enter: () => () => void): HttpRequestScope;
}

export interface HttpRequestScope {
  /** `admit` gets the size of each chunk of a buffered body, and returns false without memory for it. */
  request(params: HttpRequestParams, admit: (bytes: number) => boolean): Promise<HttpResult>;
  close(): void;
}

/** TCP connections from and to this host. */
export interface ForwardService {
  /** Connects to a target. Rejects with the system error. */
  connect(address: ForwardAddress, signal: AbortSignal): Promise<ByteStream>;
  /**
   * Listens on a port, of which 0 picks a free one, or on a Unix socket. `peer` is the address of the connecting peer, such as
   * `127.0.0.1:5000`; empty for a Unix socket. `port` of the result is null for a Unix socket.
   */
  listen(
    address: ForwardAddress,
    onStream: (stream: ByteStream, peer: string) => void,
  ): Promise<{ readonly port: number | null; close(): void }>;
  /** Returns the ports on which the process trees of these leaders listen. */
  listeningPorts(leaders: readonly number[]): Promise<{ port: number; host: string; leader: number }[]>;
}

export interface EnvironmentService {
  /** Part of every handshake, so it must be fast. */
  info(): EnvironmentInfo;
  /** Returns `info()` plus values that take time to determine. */
  describe(): Promise<EnvironmentInfo>;
  readConfig(params: ParamsOf<"environmentConfig/read">): Promise<ResultOf<"environmentConfig/read">>;
  discoverRoots(params: ParamsOf<"capabilityRoots/discoverV1">): Promise<ResultOf<"capabilityRoots/discoverV1">>;
  discover(params: ParamsOf<"capabilities/discoverV2">): Promise<ResultOf<"capabilities/discoverV2">>;
}

export type LogLevel = "debug" | "info" | "warn" | "error";

export type ServerLog = (level: LogLevel, message: string, fields?: Record<string, unknown>) => void;
