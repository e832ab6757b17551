import { readdirSync } from "node:fs";
import { systemClock, type Timer } from "../async/clock.ts";
import { withDeadline } from "../async/deadline.ts";
import { TaskSet } from "../async/task-set.ts";
import type { Connection } from "../connection/connection.ts";
import { nodeWire, type Wire } from "../connection/wire-parts.ts";
import { tightest } from "../exec/backend/process-limits.ts";
import type { StartParams } from "../exec/exec-process.ts";
import type { HostBackend, HostProcess } from "../exec/host-backend.ts";
import type { RestoredProcess } from "../exec/kept-process.ts";
import { ErrorCode, invalidRequest, RequestError, toWireError } from "../protocol/errors.ts";
import type { InProcessClient, InProcessConnection, InProcessServer } from "../protocol/in-process.ts";
import type { MethodName, ParamsOf, ResultOf } from "../protocol/methods.ts";
import { newSessionId } from "./auth/session-id.ts";
import { newGeneration } from "./generation.ts";
import type { HostServices, PeerAddress, ServerLog } from "./host-services.ts";
import { metricsText } from "./observability/prometheus-text.ts";
import type { ServerFigures } from "./observability/server-metrics.ts";
import { LOCAL, type Principal } from "./principal.ts";
import { ConnectionHandler } from "./rpc/connection-handler.ts";
import { describe, runConnection } from "./rpc/connection-loop.ts";
import type { Peer } from "./rpc/peer.ts";
import {
  CONNECTIONS_CLOSE_WITHIN_MS,
  DEFAULT_SERVER_CONFIG,
  HAND_OVER_GRACE_MS,
  type ServerConfig,
} from "./server-config.ts";
import { SharedRoom } from "./server-resources.ts";
import { ServerHeldProcesses } from "./session/background-processes.ts";
import { ProcessHandles } from "./session/process-handles.ts";
import { SessionRegistry } from "./session/session-registry.ts";
import { ViewerTurns } from "./session/viewer-scheduler.ts";

/**
 * An exec-server: sessions and their processes, whatever the connections come in by.
 *
 * @example
 * const server = new ExecServer(createLocalHost());
 * server.accept(connection);           // any Connection
 * await server.close();                // ends every process
 */
export class ExecServer implements InProcessServer, AsyncDisposable {
  readonly config: ServerConfig;
  /** Tells this server from the one that was here before. */
  readonly generation: string;
  readonly #host: HostServices;
  readonly #sessions: SessionRegistry;
  readonly #log: ServerLog;
  readonly #connections: TaskSet;
  /** What all connections share. */
  readonly room: SharedRoom;
  readonly #open = new Set<{ close(reason: string): void; readonly queuedBytes?: number }>();
  #liveProcesses = 0;
  #acceptedCount = 0;
  #closing: Promise<void> | null = null;
  #isLeaving = false;

  constructor(host: HostServices, config: Partial<ServerConfig> = {}) {
    this.config = { ...DEFAULT_SERVER_CONFIG, ...config };
    this.#host = { ...host, backend: this.#untilClosing(host.backend) };
    this.#log = host.log ?? (() => undefined);
    this.generation = host.generation ?? newGeneration();
    this.room = new SharedRoom(this.config, host.memory);
    const clock = host.clock ?? systemClock;
    this.#sessions = new SessionRegistry(
      {
        backend: this.#host.backend,
        clock,
        turns: new ViewerTurns(clock),
        held: new ServerHeldProcesses(clock),
        handles: new ProcessHandles(host.randomBytes),
        config: this.config,
        isAudited: host.audit !== undefined,
        generation: this.generation,
      },
      host.newId ?? newSessionId,
    );
    this.#connections = new TaskSet((error) =>
      this.#log("error", "a connection failed", { error: describe(error) }),
    );
  }

  /** What connections to this server go by. */
  get wire(): Wire {
    return this.#host.wire ?? nodeWire;
  }

  get connectionCount(): number {
    return this.#open.size;
  }

  /** How many were taken so far. */
  get acceptedCount(): number {
    return this.#acceptedCount;
  }

  get liveProcessCount(): number {
    return this.#liveProcesses;
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  get figures(): ServerFigures | null {
    return this.#host.figures ?? null;
  }

  /** Prometheus text; null for a server that counts nothing. */
  metrics(): string | null {
    const { figures } = this;
    if (!figures) return null;
    let queuedBytes = 0;
    for (const { queuedBytes: queued = 0 } of this.#open) queuedBytes += queued;
    return metricsText(figures, {
      connections: this.connectionCount,
      sessions: this.sessionCount,
      queuedBytes,
      degradedParts: this.degraded().length,
      loopLag: figures.loopLag(),
      openDescriptors: openDescriptors(),
    });
  }

  get log(): ServerLog {
    return this.#log;
  }

  degraded(): string[] {
    return this.#host.backend.degraded();
  }

  /** Whether the peer is behind walls raised here; false at once where no process can be. */
  isWalledPeer(peer: PeerAddress): false | Promise<boolean> {
    return this.#host.isWalledPeer?.(peer) ?? false;
  }

  /** Whom a share token lets in; null: it is none, or none any more. */
  sharePrincipal(token: string): Principal | null {
    return this.#sessions.shares.principalOf(token);
  }

  /** Serves one connection until it ends, on behalf of the principal that was found at its other end. */
  accept(connection: Connection, principal: Principal = LOCAL): Promise<void> {
    this.#open.add(connection);
    this.#acceptedCount++;
    if (this.figures) this.figures.acceptedConnections++;
    const expiry = principal.share && this.#closeAt(principal.share.untilMs, connection);
    const run = runConnection(connection, {
      principal,
      host: this.#host,
      sessions: this.#sessions,
      config: this.config,
      room: this.room,
      log: this.#log,
    }).finally(() => {
      this.#open.delete(connection);
      expiry?.cancel();
    });
    this.#connections.run(() => run);
    return run;
  }

  #closeAt(atMs: number, connection: Connection): Timer {
    const clock = this.#host.clock ?? systemClock;
    const leftMs = Math.max(0, atMs - clock.monotonic());
    return clock.after(leftMs, () => connection.close("the share link has expired"), { keepAlive: false });
  }

  /** Serves a client in this program, without JSON. */
  connectInProcess(client: InProcessClient): InProcessConnection {
    const peer: Peer = {
      notify: (notification) => client.notified(notification),
      crowded: false,
      congested: false,
      mark: () => 0,
      hasLeft: () => true,
      onDrain: () => () => undefined,
      close: (reason) => close(reason),
    };
    const handler = new ConnectionHandler(peer, LOCAL, this.#host, this.#sessions, this.config, this.room);
    const handle = { close: (reason: string) => close(reason) };
    this.#open.add(handle);
    const close = (reason: string | null) => {
      if (!this.#open.delete(handle)) return;
      this.#connections.run(() => handler.close());
      client.disconnected(reason);
    };
    return {
      call: (method, params) => this.#callInProcess(handler, method, params),
      initialized: () => handler.initialized(),
      ack: ({ processId, seq }) => handler.ack(processId, seq),
      forwardAck: ({ streamId, bytes }) => handler.forwardAck(streamId, bytes),
      close: () => close(null),
    };
  }

  /** Takes what an earlier server below the same keeper has left. Before the first connection. */
  restore(left: readonly RestoredProcess[]): void {
    for (const restored of left) {
      this.#countUntilOver(restored.process);
      this.#sessions.restore(restored);
    }
  }

  /**
   * Another server takes this one's place: ends what is not kept, then every connection. Their clients come back to the
   * other one. Answers that are made meanwhile still go out; a wait under way does not hold this up.
   */
  async handOver(): Promise<void> {
    this.#isLeaving ||= this.#closing === null;
    this.#closing ??= this.#leave();
    await this.#closing;
  }

  async #leave(): Promise<void> {
    const graceMs = Math.min(this.config.shutdownGraceMs, HAND_OVER_GRACE_MS);
    await this.#host.backend
      .endUnkept?.(graceMs)
      .catch((error: unknown) =>
        this.#log("error", "a process could not be ended", { error: describe(error) }),
      );
    await this.#closeConnections(
      "server is being replaced",
      "a connection did not close in time; leaving anyway",
    );
    await this.#host.walledFiles?.close();
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
    await this.#endProcesses(this.config.shutdownGraceMs);
    await this.#closeConnections(
      "server is shutting down",
      "a connection did not close in time; ending anyway",
    );
    this.#sessions.endAll();
    await this.#host.walledFiles?.close();
    // Once more for what was just being started when the end began.
    await this.#endProcesses(0);
  }

  /** A connection that does not close in time is told in the log, and holds up nothing more. */
  async #closeConnections(reason: string, overdue: string): Promise<void> {
    for (const connection of [...this.#open]) connection.close(reason);
    await withDeadline(
      this.#connections.settled(),
      CONNECTIONS_CLOSE_WITHIN_MS,
      "every connection to close",
      this.#host.clock ?? systemClock,
    ).catch((error: unknown) => this.#log("warn", overdue, { error: describe(error) }));
  }

  /** A process that cannot be ended, such as one a debugger holds, must not keep the others running. */
  async #endProcesses(graceMs: number): Promise<void> {
    await this.#host.backend
      .shutdown(graceMs)
      .catch((error: unknown) =>
        this.#log("error", "a process could not be ended", { error: describe(error) }),
      );
  }

  /** The same backend, which starts nothing more once the server closes. */
  #untilClosing(backend: HostBackend): HostBackend {
    return {
      start: async (params) => {
        if (this.#isLeaving)
          throw new RequestError(
            ErrorCode.beingReplaced,
            "this server is being replaced; nothing was started: ask again on the next connection",
          );
        if (this.#closing) throw invalidRequest("server is shutting down");
        const limits = tightest(this.config.limits, params.limits);
        return this.#startCounted(backend, { ...params, limits });
      },
      degraded: () => backend.degraded(),
      shutdown: (graceMs) => backend.shutdown(graceMs),
      endUnkept: async (graceMs) => backend.endUnkept?.(graceMs),
      whyNotKept: backend.whyNotKept,
    };
  }

  async #startCounted(backend: HostBackend, params: StartParams): Promise<HostProcess> {
    const { maxServerProcesses } = this.config;
    if (this.#liveProcesses >= maxServerProcesses) {
      throw invalidRequest(
        `too many processes: this server may have ${maxServerProcesses} live processes at once; end one first, or let it have more with --max-server-processes`,
      );
    }
    this.#liveProcesses++;
    const beganAtMs = performance.now();
    try {
      const started = await backend.start(params);
      this.figures?.processStarted(started, performance.now() - beganAtMs);
      this.#countUntilOver(started);
      return started;
    } catch (error) {
      this.figures?.startFailed();
      throw error;
    } finally {
      this.#liveProcesses--;
    }
  }

  #countUntilOver({ log }: HostProcess): void {
    const isOver = () => log.exit !== null || log.isClosed || log.failure !== null;
    // It may have ended before anybody listened.
    if (isOver()) return;
    this.#liveProcesses++;
    const stop = log.listen(() => {
      if (!isOver()) return;
      stop();
      this.#liveProcesses--;
    });
  }

  async #callInProcess<M extends MethodName>(
    handler: ConnectionHandler,
    method: M,
    params: ParamsOf<M>,
  ): Promise<ResultOf<M>> {
    const afterAnswer: (() => void)[] = [];
    try {
      return await handler.call(method, params, (task) => afterAnswer.push(task));
    } catch (error) {
      if (error instanceof RequestError) throw error;
      const bug = (cause: unknown) =>
        this.#log("error", `${method} failed unexpectedly`, { error: describe(cause) });
      const { code, message } = toWireError(error, bug);
      throw new RequestError(code, message, { cause: error });
    } finally {
      // The caller's continuation is queued by now; what follows the answer comes after it.
      if (afterAnswer.length > 0) setImmediate(() => runAll(afterAnswer));
    }
  }
}

/** Where the system does not tell, nobody is told. */
function openDescriptors(): number | null {
  try {
    return readdirSync("/proc/self/fd").length;
  } catch {
    return null;
  }
}

function runAll(tasks: (() => void)[]): void {
  for (const task of tasks) task();
}
