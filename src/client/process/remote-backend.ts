import { type Clock, sleep } from "../../async/clock.ts";
import { TimeoutError } from "../../async/deadline.ts";
import { isObject } from "../../base/type-guards.ts";
import { startDetails, withCallErrors } from "../../exec/call-error.ts";
import { isProcessExists, isProcessStarting, isUnknownProcess, parseProcessFailure } from "../../exec/compat.ts";
import type { CallOptions, ExecBackend, ProcessListing, StartParams } from "../../exec/exec-process.ts";
import { earliestEndMs } from "../../exec/exec-process.ts";
import type { EventLogLimits } from "../../exec/log/event-log.ts";
import { checkArgument, checkOptions, nonEmptyText } from "../../exec/options/option-schema.ts";
import { checkCall, checkStart } from "../../exec/options/process-checks.ts";
import { abortableStart } from "../../exec/run/abortable-start.ts";
import { type DisconnectedError, invalidParams, invalidRequest } from "../../protocol/errors.ts";
import type {
  ParamsOf,
  ResultOf,
  ServerNotification,
  ServerRequest,
  ServerRequestResult,
} from "../../protocol/methods.ts";
import { attachOptions, listOptions } from "../client-options.ts";
import { toPathUri } from "../rpc/path-conversion.ts";
import { callOrExplain, explainUnknownMethod, unsupportedMethodError } from "../rpc/unsupported-method.ts";
import type { ReconnectingSession } from "../session/reconnecting-session.ts";
import type { ReopeningSession } from "../session/reopening-session.ts";
import { AttachedProcess, type AttachOptions } from "./attached-process.ts";
import { DisposedProcesses } from "./disposed-processes.ts";
import { STARTING_POLL_MS, STARTING_TIMEOUT_MS } from "./process-follower.ts";
import { RemoteProcess, type RemoteProcessDeps } from "./remote-process.ts";

/** Grace period between SIGTERM and SIGKILL when this client enforces a timeout. */
const TIMEOUT_GRACE_MS = 2000;

export interface RemoteBackendDeps {
  sessions: ReopeningSession;
  clock: Clock;
  newId: () => string;
  logLimits?: Partial<EventLogLimits> | undefined;
}

export interface ListOptions extends CallOptions {
  allSessions?: boolean | undefined;
  /** Includes CPU and memory of each live process with its descendants. Default: false. */
  usage?: boolean | undefined;
}

export class RemoteBackend implements ExecBackend {
  readonly #deps: RemoteBackendDeps;
  /** Processes that may still have events. */
  readonly #processes = new Map<string, RemoteProcess>();
  readonly #disposedProcesses: DisposedProcesses;
  #writeCount = 0;
  readonly #writerId: string;

  /** @internal */
  constructor(deps: RemoteBackendDeps) {
    this.#deps = deps;
    this.#writerId = deps.newId();
    this.#disposedProcesses = new DisposedProcesses(deps.sessions);
  }

  /** Default directory: the server's working directory as a `file:` URI. */
  get defaultCwd(): string {
    return this.#deps.sessions.current.server.environmentInfo?.cwd ?? "file:///";
  }

  /** Starts a process. An error has the server's text; `client.start` also reports which file was missing. */
  start(params: StartParams): Promise<RemoteProcess> {
    const startIn = (session: ReconnectingSession) => this.#start(session, params);
    const start = () => abortableStart(this.#deps.sessions.run(startIn, params.signal), params.signal);
    return withCallErrors(startDetails(params), start, undefined, () => checkStart(params));
  }

  /**
   * Returns a process of this session that another client started, such as an earlier client of a resumed session. Its log
   * starts with the output that the server retains.
   */
  attach(processId: string, options: CallOptions = {}): Promise<RemoteProcess> {
    const check = () => checkCall("attach", options, { processId });
    const attachIn = (session: ReconnectingSession) => this.#attach(session, processId);
    const attach = () => this.#deps.sessions.run(attachIn, options.signal);
    return withCallErrors({ method: "process/read" }, attach, options?.signal, check);
  }

  /**
   * Attaches to a process of another session of the same principal by its handle. Its log starts with the output that
   * the server retains. If already attached, returns the same object with the new role.
   */
  attachByHandle(handle: string, options: AttachOptions = {}): Promise<AttachedProcess> {
    const check = () => {
      checkArgument("attach", "handle", handle, nonEmptyText);
      checkOptions("attach", options, attachOptions);
    };
    const attachIn = (session: ReconnectingSession) => this.#attachTo(session, handle, options);
    const attach = () => this.#deps.sessions.run(attachIn, options.signal);
    return withCallErrors({ method: "process/attach" }, attach, options?.signal, check);
  }

  /** Lists the processes of this session; with `allSessions` those of every session of a procwire server. */
  list(options: ListOptions = {}): Promise<ProcessListing[]> {
    const list = () => {
      const { signal, ...which } = options;
      return this.#deps.sessions.run((session) => this.#list(session, which), signal);
    };
    const check = () => checkOptions("list", options, listOptions);
    return withCallErrors({ method: "process/list" }, list, options?.signal, check);
  }

  async #start(session: ReconnectingSession, params: StartParams): Promise<RemoteProcess> {
    params.signal?.throwIfAborted();
    const { processId } = params;
    const { isExtended, grantedExtensions } = session.server;
    if (params.limits && !isExtended)
      throw invalidParams("limits: not supported by this server; requires procwire serve");
    const { lifetime } = params;
    if (lifetime !== undefined && lifetime !== "session" && !grantedExtensions.has("attach"))
      throw invalidParams(`lifetime \`${lifetime}\`: not supported by this server; requires procwire serve`);
    const hasLabels = params.name !== undefined || params.labels !== undefined;
    if (hasLabels && !grantedExtensions.has("names"))
      throw invalidParams("name and labels: not supported by this server; requires procwire serve");
    if (params.networkProxy?.proxy.ports && !isExtended)
      throw invalidParams("networkProxy.proxy.ports: not supported by this server; requires procwire serve");
    if (params.credentials && !isExtended)
      throw invalidParams("credentials: not supported by this server; requires procwire serve");
    const wireParams = startParams(params);
    // A server without query claims leaves all terminal queries to this client.
    if (wireParams.terminalQueries === "claimed" && !grantedExtensions.has("queryClaims"))
      wireParams.terminalQueries = "client";
    if (this.#processes.has(processId)) throw invalidRequest(`process ${processId} already exists`);
    // Registered before the request: some servers send events of a process before the start result.
    const process = this.#createProcess(session, processId, params);
    // Pins all output until the caller can subscribe: the start result may arrive after much output.
    const startCursor = process.log.cursor({ lossless: true });
    try {
      process.started(await this.#startOnce(session, wireParams, process));
    } catch (error) {
      this.#processes.delete(processId);
      process.log.dispose();
      throw explainUnknownMethod("process/start", error);
    }
    const endAfterMs = earliestEndMs(params);
    if (!session.server.isExtended && endAfterMs !== null) this.#enforceTimeout(process, endAfterMs);
    this.#deps.clock.after(0, () => startCursor.close(), { keepAlive: false });
    return process;
  }

  async #attach(session: ReconnectingSession, processId: string): Promise<RemoteProcess> {
    const known = this.#processes.get(processId);
    if (known) return known;
    const process = this.#createProcess(session, processId, null);
    try {
      await process.follower.adopt();
    } catch (error) {
      this.#processes.delete(processId);
      throw error;
    }
    return process;
  }

  async #attachTo(session: ReconnectingSession, handle: string, options: AttachOptions): Promise<AttachedProcess> {
    const { role = "viewer", processId = handle, size, screen } = options;
    if (!session.server.grantedExtensions.has("attach")) throw unsupportedMethodError("process/attach");
    const found = this.#processes.get(processId);
    // The caller of `detach` gets its error.
    if (found instanceof AttachedProcess) await found.detaching?.catch(() => undefined);
    const known = this.#processes.get(processId);
    if (known instanceof AttachedProcess && known.handle === handle) {
      await known.attachAs(role, { size });
      return known;
    }
    if (known) throw invalidRequest(`process ${processId} already exists`);
    const process = this.#register(
      session,
      new AttachedProcess(handle, processId, this.#processDeps(session, processId)),
    );
    const startCursor = process.log.cursor({ lossless: true });
    try {
      await process.attachAs(role, { size, screen, isMovable: true });
    } catch (error) {
      this.#processes.delete(processId);
      process.log.dispose();
      throw explainUnknownMethod("process/attach", error);
    }
    process.follower.started();
    this.#deps.clock.after(0, () => startCursor.close(), { keepAlive: false });
    return process;
  }

  async #list(session: ReconnectingSession, options: ParamsOf<"process/list">): Promise<ProcessListing[]> {
    if (!session.server.isExtended) return [...this.#processes.values()].map((process) => process.listing());
    return (await callOrExplain(session, "process/list", options, { isMovable: true })).processes;
  }

  // ---- called by the client

  /** @internal */
  onNotification(notification: ServerNotification): void {
    this.#disposedProcesses.onNotification(notification);
    const { params } = notification;
    const process = "processId" in params ? this.#processes.get(params.processId) : undefined;
    if (!process) return;
    const { follower } = process;
    switch (notification.method) {
      case "process/output":
        follower.onEvent({ type: "output", ...notification.params });
        return;
      case "process/exited": {
        const { seq, exitCode, signal = null, reason, limit, sandboxDenied = false } = notification.params;
        const exitReason = reason ?? follower.guessReason(signal);
        follower.onEvent({ type: "exited", seq, exitCode, signal, reason: exitReason, limit, sandboxDenied });
        return;
      }
      case "process/closed":
        follower.onEvent({ type: "closed", seq: notification.params.seq });
        return;
      case "process/started":
        follower.pid = notification.params.pid;
        return;
      case "process/resized":
        process.resized(omitProcessId(notification.params));
        return;
      case "process/gap":
        follower.onGap(notification.params);
        return;
      case "process/roleChanged":
        if (process instanceof AttachedProcess) process.roleChanged(notification.params);
        return;
      case "process/driverChanged":
        process.driverChanged(notification.params.driver);
        return;
      case "network/policyDecision":
        process.networkDecided(omitProcessId(notification.params));
        return;
      case "process/failed":
        follower.fail(parseProcessFailure(notification.params.message));
        return;
      default:
        return;
    }
  }

  /** @internal Handles `network/policyRequest`. */
  async onPolicyRequest(
    { processId, request }: ServerRequest["params"],
    signal: AbortSignal,
  ): Promise<ServerRequestResult> {
    const process = this.#processes.get(processId);
    if (!process) throw invalidRequest(`unknown process id ${processId}`);
    return { decision: await process.decideNetwork(request, signal) };
  }

  /** @internal */
  onResumed(): void {
    this.#disposedProcesses.onResumed();
    for (const process of this.#processes.values()) process.follower.onResumed();
  }

  /** @internal */
  onLost(error: DisconnectedError): void {
    this.#disposedProcesses.onLost();
    for (const process of [...this.#processes.values()]) process.follower.fail(error);
  }

  // ---- internals

  #createProcess(session: ReconnectingSession, processId: string, params: StartParams | null): RemoteProcess {
    return this.#register(session, new RemoteProcess(processId, params, this.#processDeps(session, processId)));
  }

  #processDeps(session: ReconnectingSession, processId: string): RemoteProcessDeps {
    const { clock, logLimits } = this.#deps;
    return {
      session,
      clock,
      newWriteId: () => `${this.#writerId}-${++this.#writeCount}`,
      onReleased: () => {
        if (!session.isDisconnected) this.#disposedProcesses.add(processId);
      },
      logLimits,
    };
  }

  /** Routes events of this process id to `process`. */
  #register<P extends RemoteProcess>(session: ReconnectingSession, process: P): P {
    const { processId } = process;
    session.forgetFinalAck(processId);
    this.#disposedProcesses.forget(processId);
    this.#processes.set(processId, process);
    process.log.listen(() => {
      const hasEnded = process.log.isClosed || process.log.failure !== null;
      if (hasEnded && this.#processes.get(processId) === process) this.#processes.delete(processId);
    });
    return process;
  }

  /**
   * Starts the process exactly once, even if the connection breaks. If a repeated start fails with "already exists", the
   * first copy has arrived. If the process is then unknown and has no events, the first start failed, and the next attempt
   * returns the reason. If it has events, it ended and was acknowledged meanwhile.
   */
  async #startOnce(
    session: ReconnectingSession,
    params: ParamsOf<"process/start">,
    { follower }: RemoteProcess,
  ): Promise<ResultOf<"process/start">> {
    const { processId } = params;
    let isRepeated = false;
    for (;;) {
      try {
        const onResend = (): undefined => {
          isRepeated = true;
        };
        // The next server knows persistent processes too, and rejects a repeated start as already existing.
        const resend = params.lifetime === "persistent" ? "always" : "sameServer";
        return await session.call("process/start", params, { onResend, resend, isMovable: !isRepeated });
      } catch (error) {
        if (!isRepeated || !isProcessExists(error, processId)) throw error;
      }
      if (follower.hasNewEvents || (await this.#isKnown(session, processId)) || follower.hasNewEvents)
        return { processId, sandboxType: params.sandboxType ?? "none" };
    }
  }

  async #isKnown(session: ReconnectingSession, processId: string): Promise<boolean> {
    const { clock } = this.#deps;
    const deadline = clock.monotonic() + STARTING_TIMEOUT_MS;
    for (;;) {
      try {
        await session.call("process/read", { processId, maxBytes: 0 });
        return true;
      } catch (error) {
        if (isUnknownProcess(error, processId)) return false;
        if (!isProcessStarting(error)) throw error;
      }
      if (clock.monotonic() >= deadline)
        throw new TimeoutError(
          `process ${processId} to start (the connection was lost meanwhile, and the process may have started)`,
          STARTING_TIMEOUT_MS,
        );
      await sleep(clock, STARTING_POLL_MS);
    }
  }

  /** Enforces a timeout for servers without time limits. */
  #enforceTimeout(process: RemoteProcess, timeoutMs: number): void {
    const timer = this.#deps.clock.after(
      timeoutMs,
      // A server that is disconnected by then has ended the process, or the log has failed.
      () => {
        process.follower.exitReason ??= "timeout";
        void process.terminate({ type: "graceful", timeoutMs: TIMEOUT_GRACE_MS }).catch(() => undefined);
      },
      { keepAlive: false },
    );
    process.log.listen(() => {
      if (process.log.exit !== null || process.log.failure !== null) timer.cancel();
    });
  }
}

function startParams(params: StartParams): ParamsOf<"process/start"> {
  // The scope is not sent: on the server the session is the scope.
  const {
    cwd,
    sandboxScope: _sandboxScope,
    sandboxRequirement: _sandboxRequirement,
    signal: _signal,
    decideNetwork: _decideNetwork,
    onNetworkDecision: _onNetworkDecision,
    ...rest
  } = params;
  const sandbox = params.sandbox ?? undefined;
  if (sandbox !== undefined && !isObject(sandbox)) throw invalidParams("sandbox must be an object");
  return { ...rest, cwd: toPathUri(cwd, "cwd"), sandbox };
}

function omitProcessId<T extends { processId: string }>({ processId: _, ...rest }: T): Omit<T, "processId"> {
  return rest;
}
