import { readdirSync } from "node:fs";
import { type Clock, systemClock, type Timer } from "../async/clock.ts";
import { withDeadline } from "../async/deadline.ts";
import { MemoryBudget } from "../async/memory-budget.ts";
import { TaskSet } from "../async/task-set.ts";
import { errorStack } from "../base/error-message.ts";
import type { PeerAddress } from "../base/peer-address.ts";
import type { Connection } from "../connection/connection.ts";
import { nodeSocketProvider, type SocketProvider } from "../connection/socket-provider.ts";
import type { RestoredProcess } from "../exec/backend/persistent-process.ts";
import { ProcessNames } from "../exec/backend/process-names.ts";
import { checkOptions } from "../exec/options/option-schema.ts";
import { ErrorCode, invalidRequest, RequestError, SHARE_CLOSE_REASONS } from "../protocol/errors.ts";
import type { InProcessClient, InProcessConnection, InProcessServer } from "../protocol/in-process.ts";
import type { AuditLog } from "./audit/audit-log.ts";
import { recordProcessEnd, recordQuestion } from "./audit/audited-calls.ts";
import { AccessList } from "./auth/access-list.ts";
import type { Authenticator } from "./auth/authenticator.ts";
import { LOCAL_PRINCIPAL, type Principal } from "./auth/principal.ts";
import { newSessionId } from "./auth/session-id.ts";
import { CappedBackend } from "./capped-backend.ts";
import type { ConsoleAccess } from "./console/console-access.ts";
import type { HostServices, ServerLog } from "./host-services.ts";
import { newGeneration } from "./lifecycle/server-generation.ts";
import { OpenQuestions } from "./network/open-questions.ts";
import { prometheusText } from "./observability/prometheus-text.ts";
import type { ServerMetrics } from "./observability/server-metrics.ts";
import { PrincipalQuotas } from "./principal-quotas.ts";
import { type ConnectionLoopDeps, serveConnection } from "./rpc/connection-loop.ts";
import { serveInProcess } from "./rpc/in-process-connection.ts";
import type { ServerConfig } from "./server-config.ts";
import { CONNECTION_CLOSE_TIMEOUT_MS, DEFAULT_SERVER_CONFIG, HANDOFF_GRACE_MS } from "./server-config.ts";
import { serverConfig } from "./server-options.ts";
import { ServerResources } from "./server-resources.ts";
import { BackgroundProcesses } from "./session/background-processes.ts";
import { ProcessHandles } from "./session/process-handles.ts";
import { SessionRegistry } from "./session/session-registry.ts";
import { ViewerScheduler } from "./session/viewer-scheduler.ts";

/**
 * An exec-server: sessions and their processes, independent of the transport of their connections.
 *
 * @example
 * const server = new ExecServer(createLocalHost());
 * server.accept(connection);           // any Connection
 * await server.close();                // ends every process
 */
export class ExecServer implements InProcessServer, AsyncDisposable {
  readonly config: ServerConfig;
  /** Identifies this run of the server. */
  readonly generation: string;
  readonly #host: HostServices;
  readonly #backend: CappedBackend;
  readonly #sessions: SessionRegistry;
  readonly log: ServerLog;
  readonly #connections: TaskSet;
  /** Resources that each principal holds. */
  readonly quotas: PrincipalQuotas;
  /** Memory budget and resource caps shared by all connections. */
  readonly resources: ServerResources;
  readonly #open = new Set<{ close(reason: string): void; readonly queuedBytes?: number }>();
  /** Open connections and console sessions. */
  readonly accesses = new AccessList();
  #acceptedCount = 0;
  #console: ConsoleAccess | null = null;
  #authenticator: Authenticator | null = null;
  #closing: Promise<void> | null = null;
  #isHandingOff = false;

  constructor(host: HostServices, config: Partial<ServerConfig> = {}) {
    checkOptions("ExecServer", config, serverConfig, "config");
    this.config = { ...DEFAULT_SERVER_CONFIG, ...config };
    this.quotas = new PrincipalQuotas(this.config, (quota) => this.metrics?.quotaRefused(quota));
    this.#backend = new CappedBackend(host.backend, {
      config: this.config,
      quotas: this.quotas,
      metrics: host.metrics ?? null,
      closingError: () => this.#closingError(),
    });
    this.#host = { ...host, backend: this.#backend };
    this.log = host.log ?? (() => undefined);
    this.generation = host.generation ?? newGeneration();
    this.resources = new ServerResources(
      this.config,
      this.quotas,
      host.memory ?? new MemoryBudget(this.config.memoryBudgetBytes),
      host.principalMemories,
    );
    const clock = host.clock ?? systemClock;
    this.#sessions = new SessionRegistry(
      {
        backend: this.#backend,
        clock,
        viewerScheduler: new ViewerScheduler(clock),
        background: new BackgroundProcesses(clock),
        handles: new ProcessHandles(host.randomBytes),
        names: new ProcessNames(),
        config: this.config,
        questions: new OpenQuestions(Date.now, (ended) => this.audit && recordQuestion(this.audit, ended)),
        quotas: this.quotas,
        isAudited: host.audit !== undefined,
        generation: this.generation,
      },
      host.newId ?? newSessionId,
    );
    this.#evictDetachedWhenLowered();
    this.#connections = new TaskSet((error) => this.log("error", "a connection failed", { error: errorStack(error) }));
  }

  /** Creates and accepts the sockets of this server. */
  get sockets(): SocketProvider {
    return this.#host.sockets ?? nodeSocketProvider;
  }

  get connectionCount(): number {
    return this.#open.size;
  }

  /** Number of connections accepted so far. */
  get acceptedCount(): number {
    return this.#acceptedCount;
  }

  get liveProcessCount(): number {
    return this.#backend.liveProcessCount;
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  get metrics(): ServerMetrics | null {
    return this.#host.metrics ?? null;
  }

  /** Returns the metrics as Prometheus text, or null if metrics are disabled. */
  metricsText(): string | null {
    const { metrics } = this;
    if (!metrics) return null;
    let queuedBytes = 0;
    for (const { queuedBytes: queued = 0 } of this.#open) queuedBytes += queued;
    return prometheusText(metrics, {
      connections: this.connectionCount,
      sessions: this.sessionCount,
      principals: Math.max(this.quotas.principalCount, this.#host.principalMemories?.size ?? 0),
      queuedBytes,
      degradedParts: this.degradedComponents().length,
      memory: this.resources.memory,
      loopLag: metrics.loopLag(),
      openDescriptors: countOpenFds(),
      audit: this.audit,
    });
  }

  /** Audit log; null if the server has none. */
  get audit(): AuditLog | null {
    return this.#host.audit ?? null;
  }

  degradedComponents(): string[] {
    const { isLowered, limitBytes } = this.resources.memory;
    return [
      ...this.#backend.degradedComponents(),
      ...(this.audit?.degradedComponents() ?? []),
      ...(isLowered
        ? [`memory: the container is almost full; output and messages are limited to ${limitBytes} bytes`]
        : []),
    ];
  }

  /** Loses output of disconnected clients only to keep the kernel from killing the server. */
  #evictDetachedWhenLowered(): void {
    const { memory } = this.resources;
    memory.addReclaimer("detachedSessions", (bytes) => {
      const target = memory.bytes - bytes;
      if (memory.isLowered) this.#sessions.evictDetached(() => memory.bytes > target);
    });
  }

  /** Reports whether the peer is a sandboxed process of this server; false at once if there is no such process. */
  isSandboxedPeer(peer: PeerAddress): false | Promise<boolean> {
    return this.#host.isSandboxedPeer?.(peer) ?? false;
  }

  /** Returns the principal of a share token, or null if the token is unknown or expired. */
  sharePrincipal(token: string): Principal | null {
    return this.#sessions.shares.principalOf(token);
  }

  get clock(): Clock {
    return this.#host.clock ?? systemClock;
  }

  /** Sets the authenticator of this server's clients. */
  setAuthenticator(authenticator: Authenticator): void {
    this.#authenticator = authenticator;
  }

  /** Sets the console that clients of this server can sign in to. */
  setConsole(access: ConsoleAccess): void {
    this.#console = access;
  }

  /** Serves one connection until it closes, on behalf of the authenticated principal. */
  accept(connection: Connection, client: Principal = LOCAL_PRINCIPAL, peer = ""): Promise<void> {
    // A copy, which identifies the connection in the list of accesses.
    const principal = { ...client };
    this.#open.add(connection);
    this.#acceptedCount++;
    if (this.metrics) this.metrics.acceptedConnections++;
    const expiry = principal.share && this.#closeAt(principal.share.expiresAtMs, connection);
    const close = (reason: string) => connection.close(reason);
    const leave = principal.share && this.#sessions.shares.onConnected(client, close);
    const { clock } = this;
    let lastUsedAtMs = clock.now();
    const removeAccess = this.accesses.add({
      ...{ kind: "connection", principal, peer, device: "", sinceMs: lastUsedAtMs, close },
      lastUsedAtMs: () => lastUsedAtMs,
    });
    const onUsed = () => {
      lastUsedAtMs = clock.now();
    };
    const run = serveConnection(connection, { ...this.#connectionDeps(principal), onUsed }).finally(() => {
      this.#open.delete(connection);
      removeAccess();
      expiry?.cancel();
      leave?.();
    });
    this.#connections.run(() => run);
    return run;
  }

  #connectionDeps(principal: Principal): ConnectionLoopDeps {
    const { config, resources, log } = this;
    const base = { host: this.#host, sessions: this.#sessions, console: () => this.#console };
    const access = { accesses: this.accesses, authenticator: () => this.#authenticator };
    return { ...base, ...access, principal, config, resources, log };
  }

  #closeAt(atMs: number, connection: Connection): Timer {
    const { clock } = this;
    const leftMs = Math.max(0, atMs - clock.monotonic());
    return clock.after(leftMs, () => connection.close(SHARE_CLOSE_REASONS.expired), { keepAlive: false });
  }

  /** Connects a client in the same program, without JSON. */
  connectInProcess(client: InProcessClient): InProcessConnection {
    const close = (reason: string | null) => {
      if (!this.#open.delete(handle)) return;
      this.#connections.run(() => handler.close());
      client.onDisconnect(reason);
    };
    const handle = { close };
    this.#open.add(handle);
    const { handler, connection } = serveInProcess(client, this.#connectionDeps(LOCAL_PRINCIPAL), close);
    return connection;
  }

  /** Restores the persistent processes of the previous server. Call it before the first connection. */
  restorePersistent(processes: readonly RestoredProcess[]): void {
    for (const restored of processes) {
      const { process, owner } = restored;
      this.#backend.restore(process, owner.ownerId);
      this.#sessions.restore(restored);
      if (this.audit) recordProcessEnd(this.audit, process, { processId: process.processId, handle: owner.handle });
    }
  }

  /**
   * Hands off to the next server: ends all processes that are not persistent, then closes every connection. Clients
   * reconnect to the next server. Responses that become ready meanwhile are still sent; pending waits do not delay
   * the handoff.
   */
  async handOff(): Promise<void> {
    this.#isHandingOff ||= this.#closing === null;
    this.#closing ??= this.#stopAccepting();
    await this.#closing;
  }

  async #stopAccepting(): Promise<void> {
    const graceMs = Math.min(this.config.shutdownGraceMs, HANDOFF_GRACE_MS);
    await this.#logEndFailure(this.#backend.endNonPersistent(graceMs));
    await this.#closeConnections("server is being replaced", "a connection did not close in time; leaving anyway");
    await this.#host.sandboxedFiles?.close();
  }

  /** Ends every process (TERM, grace, KILL, sweep) and every connection. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await this.#logEndFailure(this.#backend.shutdown(this.config.shutdownGraceMs));
    await this.#closeConnections("server is shutting down", "a connection did not close in time; ending anyway");
    this.#sessions.closeAll();
    await this.#host.sandboxedFiles?.close();
    // Again, for processes whose start was pending when the shutdown began.
    await this.#logEndFailure(this.#backend.shutdown(0));
  }

  /** Closes all connections. Logs a timeout and continues without the remaining ones. */
  async #closeConnections(reason: string, overdue: string): Promise<void> {
    for (const connection of [...this.#open]) connection.close(reason);
    await withDeadline(
      this.#connections.settled(),
      CONNECTION_CLOSE_TIMEOUT_MS,
      "every connection to close",
      this.clock,
    ).catch((error: unknown) => this.log("warn", overdue, { error: errorStack(error) }));
  }

  /** Awaits the end of processes. A process that cannot be ended, such as one held by a debugger, is only logged. */
  async #logEndFailure(ended: Promise<void>): Promise<void> {
    await ended.catch((error: unknown) => this.log("error", "failed to end a process", { error: errorStack(error) }));
  }

  #closingError(): RequestError | null {
    if (this.#isHandingOff)
      return new RequestError(
        ErrorCode.beingReplaced,
        "this server is being replaced; nothing was started; retry on the next connection",
      );
    return this.#closing && invalidRequest("server is shutting down");
  }
}

/** Returns null if the system does not provide the count. */
function countOpenFds(): number | null {
  try {
    return readdirSync("/proc/self/fd").length;
  } catch {
    return null;
  }
}
