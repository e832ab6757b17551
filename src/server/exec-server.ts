import { readdirSync } from "node:fs";
import { systemClock, type Timer } from "../async/clock.ts";
import { withDeadline } from "../async/deadline.ts";
import { TaskSet } from "../async/task-set.ts";
import type { Connection } from "../connection/connection.ts";
import { nodeSocketProvider, type SocketProvider } from "../connection/socket-provider.ts";
import type { HostBackend, HostProcess } from "../exec/backend/host-backend.ts";
import type { RestoredProcess } from "../exec/backend/persistent-process.ts";
import { mergeLimits } from "../exec/backend/process-limits.ts";
import type { StartParams } from "../exec/exec-process.ts";
import { ErrorCode, invalidRequest, RequestError, toWireError } from "../protocol/errors.ts";
import type { InProcessClient, InProcessConnection, InProcessServer } from "../protocol/in-process.ts";
import type { MethodName, ParamsOf, ResultOf } from "../protocol/methods.ts";
import { LOCAL_PRINCIPAL, type Principal } from "./auth/principal.ts";
import { newSessionId } from "./auth/session-id.ts";
import type { HostServices, PeerAddress, ServerLog } from "./host-services.ts";
import { newGeneration } from "./lifecycle/server-generation.ts";
import { prometheusText } from "./observability/prometheus-text.ts";
import type { ServerMetrics } from "./observability/server-metrics.ts";
import { ConnectionHandler } from "./rpc/connection-handler.ts";
import { type ConnectionLoopDeps, describeError, serveConnection } from "./rpc/connection-loop.ts";
import type { Peer } from "./rpc/peer.ts";
import {
  CONNECTION_CLOSE_TIMEOUT_MS,
  DEFAULT_SERVER_CONFIG,
  HANDOFF_GRACE_MS,
  type ServerConfig,
} from "./server-config.ts";
import { ServerResources } from "./server-resources.ts";
import { BackgroundProcesses } from "./session/background-processes.ts";
import { ProcessHandles } from "./session/process-handles.ts";
import { onceEnded } from "./session/process-state.ts";
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
  readonly #sessions: SessionRegistry;
  readonly log: ServerLog;
  readonly #connections: TaskSet;
  /** Memory budget and resource caps shared by all connections. */
  readonly resources: ServerResources;
  readonly #open = new Set<{ close(reason: string): void; readonly queuedBytes?: number }>();
  #liveProcesses = 0;
  #acceptedCount = 0;
  #closing: Promise<void> | null = null;
  #isHandingOff = false;

  constructor(host: HostServices, config: Partial<ServerConfig> = {}) {
    this.config = { ...DEFAULT_SERVER_CONFIG, ...config };
    this.#host = { ...host, backend: this.#rejectOnClose(host.backend) };
    this.log = host.log ?? (() => undefined);
    this.generation = host.generation ?? newGeneration();
    this.resources = new ServerResources(this.config, host.memory);
    const clock = host.clock ?? systemClock;
    this.#sessions = new SessionRegistry(
      {
        backend: this.#host.backend,
        clock,
        viewerScheduler: new ViewerScheduler(clock),
        background: new BackgroundProcesses(clock),
        handles: new ProcessHandles(host.randomBytes),
        config: this.config,
        isAudited: host.audit !== undefined,
        generation: this.generation,
      },
      host.newId ?? newSessionId,
    );
    this.#connections = new TaskSet((error) =>
      this.log("error", "a connection failed", { error: describeError(error) }),
    );
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
    return this.#liveProcesses;
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
      queuedBytes,
      degradedParts: this.degradedComponents().length,
      loopLag: metrics.loopLag(),
      openDescriptors: countOpenFds(),
    });
  }

  degradedComponents(): string[] {
    return this.#host.backend.degradedComponents();
  }

  /** Reports whether the peer is a sandboxed process of this server; false at once if there is no such process. */
  isSandboxedPeer(peer: PeerAddress): false | Promise<boolean> {
    return this.#host.isSandboxedPeer?.(peer) ?? false;
  }

  /** Returns the principal of a share token, or null if the token is unknown or expired. */
  sharePrincipal(token: string): Principal | null {
    return this.#sessions.shares.principalOf(token);
  }

  /** Serves one connection until it closes, on behalf of the authenticated principal. */
  accept(connection: Connection, principal: Principal = LOCAL_PRINCIPAL): Promise<void> {
    this.#open.add(connection);
    this.#acceptedCount++;
    if (this.metrics) this.metrics.acceptedConnections++;
    const expiry = principal.share && this.#closeAt(principal.share.expiresAtMs, connection);
    const run = serveConnection(connection, this.#connectionDeps(principal)).finally(() => {
      this.#open.delete(connection);
      expiry?.cancel();
    });
    this.#connections.run(() => run);
    return run;
  }

  #connectionDeps(principal: Principal): ConnectionLoopDeps {
    const { config, resources, log } = this;
    return { principal, host: this.#host, sessions: this.#sessions, config, resources, log };
  }

  #closeAt(atMs: number, connection: Connection): Timer {
    const clock = this.#host.clock ?? systemClock;
    const leftMs = Math.max(0, atMs - clock.monotonic());
    return clock.after(leftMs, () => connection.close("the share link has expired"), { keepAlive: false });
  }

  /** Connects a client in the same program, without JSON. */
  connectInProcess(client: InProcessClient): InProcessConnection {
    const peer: Peer = {
      notify: (notification) => client.onNotification(notification),
      isAboveBulkLimit: false,
      isAboveQueueLimit: false,
      sentPosition: () => 0,
      isFlushedThrough: () => true,
      onDrain: () => () => undefined,
      close: (reason) => close(reason),
    };
    const handler = new ConnectionHandler(peer, this.#connectionDeps(LOCAL_PRINCIPAL));
    const handle = { close: (reason: string) => close(reason) };
    this.#open.add(handle);
    const close = (reason: string | null) => {
      if (!this.#open.delete(handle)) return;
      this.#connections.run(() => handler.close());
      client.onDisconnect(reason);
    };
    return {
      call: (method, params) => this.#callInProcess(handler, method, params),
      initialized: () => handler.initialized(),
      ack: ({ processId, seq }) => handler.ack(processId, seq),
      forwardAck: ({ streamId, bytes }) => handler.forwardAck(streamId, bytes),
      close: () => close(null),
    };
  }

  /** Restores the persistent processes of the previous server. Call it before the first connection. */
  restorePersistent(processes: readonly RestoredProcess[]): void {
    for (const restored of processes) {
      this.#countUntilEnded(restored.process);
      this.#sessions.restore(restored);
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
    await this.#logEndFailure(this.#host.backend.endNonPersistent?.(graceMs));
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
    await this.#logEndFailure(this.#host.backend.shutdown(this.config.shutdownGraceMs));
    await this.#closeConnections("server is shutting down", "a connection did not close in time; ending anyway");
    this.#sessions.closeAll();
    await this.#host.sandboxedFiles?.close();
    // Again, for processes whose start was pending when the shutdown began.
    await this.#logEndFailure(this.#host.backend.shutdown(0));
  }

  /** Closes all connections. Logs a timeout and continues without the remaining ones. */
  async #closeConnections(reason: string, overdue: string): Promise<void> {
    for (const connection of [...this.#open]) connection.close(reason);
    await withDeadline(
      this.#connections.settled(),
      CONNECTION_CLOSE_TIMEOUT_MS,
      "every connection to close",
      this.#host.clock ?? systemClock,
    ).catch((error: unknown) => this.log("warn", overdue, { error: describeError(error) }));
  }

  /** Awaits the end of processes. A process that cannot be ended, such as one held by a debugger, is only logged. */
  async #logEndFailure(ended: Promise<void> | undefined): Promise<void> {
    await ended?.catch((error: unknown) =>
      this.log("error", "failed to end a process", { error: describeError(error) }),
    );
  }

  /** Wraps the backend so that it rejects starts once the server closes. */
  #rejectOnClose(backend: HostBackend): HostBackend {
    return {
      start: async (params) => {
        if (this.#isHandingOff)
          throw new RequestError(
            ErrorCode.beingReplaced,
            "this server is being replaced; nothing was started; retry on the next connection",
          );
        if (this.#closing) throw invalidRequest("server is shutting down");
        const limits = mergeLimits(this.config.limits, params.limits);
        return this.#startTracked(backend, { ...params, limits });
      },
      degradedComponents: () => backend.degradedComponents(),
      shutdown: (graceMs) => backend.shutdown(graceMs),
      endNonPersistent: async (graceMs) => backend.endNonPersistent?.(graceMs),
      persistenceUnavailableReason: backend.persistenceUnavailableReason,
    };
  }

  async #startTracked(backend: HostBackend, params: StartParams): Promise<HostProcess> {
    const { maxServerProcesses } = this.config;
    if (this.#liveProcesses >= maxServerProcesses) {
      throw invalidRequest(
        `too many processes: this server may have ${maxServerProcesses} live processes at once; end one first, or raise --max-server-processes`,
      );
    }
    this.#liveProcesses++;
    const beganAtMs = performance.now();
    try {
      const started = await backend.start(params);
      this.metrics?.processStarted(started, performance.now() - beganAtMs);
      this.#countUntilEnded(started);
      return started;
    } catch (error) {
      if (this.metrics) this.metrics.failedStarts++;
      throw error;
    } finally {
      this.#liveProcesses--;
    }
  }

  #countUntilEnded(process: HostProcess): void {
    this.#liveProcesses++;
    onceEnded(process, () => this.#liveProcesses--);
  }

  async #callInProcess<M extends MethodName>(
    handler: ConnectionHandler,
    method: M,
    params: ParamsOf<M>,
  ): Promise<ResultOf<M>> {
    const afterResponse: (() => void)[] = [];
    try {
      return await handler.call(method, params, (task) => afterResponse.push(task));
    } catch (error) {
      if (error instanceof RequestError) throw error;
      const bug = (cause: unknown) =>
        this.log("error", `${method} failed unexpectedly`, { error: describeError(cause) });
      const { code, message } = toWireError(error, true, bug);
      throw new RequestError(code, message, { cause: error });
    } finally {
      // The caller's continuation is already queued, so these tasks run after it.
      if (afterResponse.length > 0)
        setImmediate(() => {
          for (const task of afterResponse) task();
        });
    }
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
