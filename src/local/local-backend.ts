import { constants } from "node:os";
import { type Clock, sleep, systemClock } from "../async/clock.ts";
import { withDeadline } from "../async/deadline.ts";
import type { HostBackend } from "../exec/backend/host-backend.ts";
import {
  PERSISTENT_RETAINED_BYTES,
  PERSISTENT_RETAINED_CHUNKS,
  type RestoredProcess,
} from "../exec/backend/persistent-process.ts";
import type { ProcessLimits } from "../exec/backend/process-limits.ts";
import { ProcessNames } from "../exec/backend/process-names.ts";
import type {
  ResolvedSandbox,
  RestoredSandbox,
  SandboxedStart,
  SandboxResources,
} from "../exec/backend/resolved-sandbox.ts";
import { sandboxRequirementError } from "../exec/backend/sandbox-requirement.ts";
import { startDetails, withCallErrors } from "../exec/call-error.ts";
import type {
  CallOptions,
  ExecBackend,
  ExitReason,
  ProcessListing,
  SandboxType,
  StartParams,
  TreeUsage,
} from "../exec/exec-process.ts";
import { EventLog, type EventLogLimits, type EventLogOptions } from "../exec/log/event-log.ts";
import type { PrincipalMemories } from "../exec/log/principal-memory.ts";
import type { RetentionBudget } from "../exec/log/retention-budget.ts";
import { checkCall, checkStart } from "../exec/options/process-checks.ts";
import { abortableStart } from "../exec/run/abortable-start.ts";
import { internalError, invalidParams, invalidRequest } from "../protocol/errors.ts";
import type { ChildSpec } from "./child.ts";
import { buildChildEnv, filteredSecretNames } from "./child-env.ts";
import { childSpecOf } from "./child-spec.ts";
import { type EnforcedLimits, enforceLimits } from "./enforced-limits.ts";
import {
  isNetworkEnforced,
  proxiedNetwork,
  type RouteProxies,
  refusalCommand,
  SandboxListeners,
  type SandboxNetwork,
} from "./enforced-network.ts";
import { LocalProcess } from "./local-process.ts";
import type { RestoredChild } from "./persistent/persistent-child.ts";
import { decodeRecord, encodeRecord, type PersistentRecord } from "./persistent/persistent-record.ts";
import { restoreEventLog } from "./persistent/restore-event-log.ts";
import type { ProcessPlatform } from "./platform.ts";
import { type CreateProcessNetwork, type ProcessNetwork, TreeConnections } from "./process-network.ts";
import { SpawnError } from "./spawn-error.ts";
import { removeEmptyCgroups } from "./tree/cgroups.ts";
import { type Orphan, OrphanTracker, readCommandLine } from "./tree/orphan-tracker.ts";
import { TreeKiller } from "./tree/tree-kill.ts";
import { UsageSampler } from "./tree/usage-sampler.ts";
import { openVerifiedDirectory } from "./verified-directory.ts";

/** The start of a sandboxed process, as the sandbox resolver receives it. */
export type SandboxedStartParams = StartParams & {
  /** A descriptor of the working directory. The caller owns it and keeps it open until the start has ended. */
  directory?: number | undefined;
  /** Ports of a managed network, at which the sandbox listens on its own loopback interface. */
  listenPorts?: readonly number[] | undefined;
  /** Host files that are readable in the sandbox, also where it hides their directory. */
  readableFiles?: readonly string[] | undefined;
};

export interface LocalBackendOptions {
  clock?: Clock;
  eventLogLimits?: Partial<EventLogLimits>;
  /** Bounds the retained output of all processes. */
  budget?: RetentionBudget;
  /** Bounds the snapshot data of all processes. */
  snapshotBudget?: RetentionBudget;
  /** Divides both budgets between principals. Absent: one principal may use all of them. */
  principalMemories?: PrincipalMemories | undefined;
  /** Makes this OS process a subreaper, which adopts and reaps orphans of started processes. For servers only. */
  subreaper?: boolean;
  /** Further unavailable features, each with its reason. */
  degraded?: readonly string[];
  /**
   * True if application code calls this backend directly. Then the process id of a live process is rejected, and
   * errors contain the caller's stack. A server sets false: each session has its own ids, the wire protocol carries no stack,
   * and capturing the stack takes a tenth of the start time.
   */
  isLibrary?: boolean;
  /** Called after killing orphans that belong to no known process. */
  onOrphansEnded?: (orphans: Orphan[]) => void;
  /** Called once if a process cgroup cannot be created. */
  onCgroupFailed?: (error: string) => void;
  /** The source of inherited variables. Defaults to `process.env`. */
  hostEnv?: Record<string, string | undefined> | undefined;
  /** Resolves after the sandbox files shared by several processes are removed, as far as possible. */
  settleSandboxes?: (() => Promise<void>) | undefined;
  /** Resolves a sandbox request; null if it is unsupported. Without this option every request is rejected. */
  resolveSandbox?: ((request: unknown, start: SandboxedStartParams) => Promise<ResolvedSandbox | null>) | undefined;
  /** Creates the network proxy of a process. Without this option a start with `networkProxy` is rejected. */
  createNetwork?: CreateProcessNetwork | undefined;
  /** Takes over the sandbox of a persistent process with this pid. Required with a supervisor. */
  restoreSandbox?: ((resources: SandboxResources, pid: number) => Promise<RestoredSandbox>) | undefined;
  /** Serves an enforced network without `networkProxy`. Without this option such a start is rejected. */
  routeProxies?: RouteProxies | undefined;
}

export class LocalBackend implements ExecBackend, HostBackend, AsyncDisposable {
  readonly #options: LocalBackendOptions;
  readonly #clock: Clock;
  readonly #platform: ProcessPlatform;
  readonly #killer: TreeKiller;
  readonly #orphans: OrphanTracker | null;
  readonly #usage: UsageSampler;
  /** Processes that are started and not yet closed. */
  readonly #open = new Set<LocalProcess>();
  readonly #starting = new Set<Promise<void>>();
  /** Cleanups of sandboxes with their process; each resolves once nothing of the sandbox is left. */
  readonly #sandboxes = new Map<Promise<void>, LocalProcess>();
  /** Ids of all starting and open processes. Used only if `isLibrary` is set. */
  readonly #ids = new Set<string>();
  /** Names of live processes. Used only if `isLibrary` is set; a server has its own, per principal. */
  readonly #names = new ProcessNames();
  /** Start times of the last reported unclaimed orphans, by pid. */
  readonly #lastUnclaimed = new Map<number, number>();
  #hasCgroups = false;
  #disposed = false;
  readonly #onExit = () => this.#killAllNow();

  /** @internal */
  constructor(platform: ProcessPlatform, options: LocalBackendOptions) {
    this.#platform = platform;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const { table, reaper } = platform;
    this.#orphans = reaper && options.subreaper ? new OrphanTracker({ reaper, table, clock: this.#clock }) : null;
    this.#killer = new TreeKiller({
      table,
      clock: this.#clock,
      subreaper: this.#orphans !== null,
      onUnclaimed: ({ pid, startTime }) => this.#reportUnclaimed(pid, startTime),
      supervisorPid: platform.supervisor?.pid,
    });
    this.#usage = new UsageSampler({
      clock: this.#clock,
      leaders: () => [...this.#open].flatMap(({ child }) => child ?? []),
      tagOf: table.tagOf,
    });
  }

  /** Why persistent processes are unavailable; null if they are available. */
  get persistenceUnavailableReason(): string | null {
    const { supervisor } = this.#platform;
    return supervisor ? supervisor.unavailableReason : "this server runs without --supervised";
  }

  /** Restores the persistent processes of earlier servers. Kills and counts processes with unreadable state. */
  async restorePersistent(): Promise<{ restored: RestoredProcess[]; unreadable: number }> {
    const readable: InheritedProcess[] = [];
    let unreadable = 0;
    for (let taken = this.#takeInherited(); taken !== null; taken = this.#takeInherited()) {
      if (taken === "unreadable") unreadable++;
      else readable.push(taken);
    }
    const sandboxes = await Promise.all(readable.map((process) => this.#restoreSandbox(process)));
    // Runs without a pause until the caller has the processes: their events begin with the next turn of the event loop.
    const restored = readable.map((process, at) => this.#restore(process, sandboxes[at] ?? null));
    this.#openCgroups(readable.map(({ inherited }) => inherited.child.treeTag));
    return { restored, unreadable };
  }

  async #restoreSandbox({ record, inherited }: InheritedProcess): Promise<RestoredSandbox | null> {
    if (!record.sandbox) return null;
    return (await this.#options.restoreSandbox?.(record.sandbox, inherited.child.pid)) ?? null;
  }

  /** Runs before the first process is started or after all persistent processes are restored. */
  #openCgroups(persistentTags: readonly number[]): void {
    if (this.#hasCgroups || !this.#options.subreaper) return;
    this.#hasCgroups = true;
    this.#platform.openCgroups?.({
      persistentTags,
      onFailure: (error) => this.#options.onCgroupFailed?.(error),
    });
  }

  #takeInherited(): InheritedProcess | "unreadable" | null {
    const inherited = this.#platform.supervisor?.takeRestored();
    if (!inherited || inherited === "unreadable") return inherited ?? null;
    const record = decodeRecord(inherited.record);
    if (record) return { record, inherited };
    const { child } = inherited;
    child.signalGroup(SIGKILL);
    child.persistent?.remove();
    child.closeStreams();
    return "unreadable";
  }

  /** Unavailable features, each with its reason. */
  degradedComponents(): string[] {
    return [...this.#platform.degraded, ...(this.#options.degraded ?? [])];
  }

  start(params: StartParams): Promise<LocalProcess> {
    if (!this.#options.isLibrary) return this.#start(params);
    return withCallErrors(
      startDetails(params),
      () => this.#start(params),
      undefined,
      () => checkStart(params),
    );
  }

  async #start({ signal, ...params }: StartParams): Promise<LocalProcess> {
    if (this.#disposed) throw invalidRequest("start process: the backend is closed");
    signal?.throwIfAborted();
    const { lifetime = "session" } = params;
    if (this.#options.isLibrary && lifetime !== "session")
      throw invalidParams(`lifetime \`${lifetime}\`: not supported by a local backend; requires procwire serve`);
    return abortableStart(this.#startSteps(params), signal);
  }

  /** Prepares, sandboxes, spawns and registers a process. A step that fails undoes the steps before it. */
  async #startSteps(params: StartParams): Promise<LocalProcess> {
    using undo = new DisposableStack();
    const { processId, cwdIdentity, name } = params;
    this.#reserveId(processId);
    undo.defer(() => this.#ids.delete(processId));
    const claim = this.#options.isLibrary && name !== undefined ? this.#names.claim("", name, processId) : null;
    undo.defer(() => claim?.release());
    let started: LocalProcess | null = null;
    const network = await this.#createNetwork(params, () => started);
    undo.defer(() => network?.close());
    const childEnv = buildChildEnv(params, this.#hostEnv);
    const enforced = isNetworkEnforced(params) ? await this.#enforcedNetwork(params, network, childEnv) : null;
    const listeners = enforced && new SandboxListeners(enforced);
    undo.defer(() => listeners?.close());
    const variables = enforced ? enforced.variables : await network?.listen();
    const prepared = childSpecOf(params, { ...childEnv, ...variables });
    // Stays open until the start has ended.
    using verified = cwdIdentity === undefined ? null : openVerifiedDirectory(prepared.cwd, cwdIdentity);
    const directory = verified?.fd;

    const { env } = prepared;
    const managed = { listenPorts: listeners?.ports, readableFiles: network?.readableFiles };
    const sandbox = await this.#resolveSandbox({ ...params, env, directory, ...managed }, enforced);
    if (sandbox) undo.defer(() => sandbox.started(null));

    const limits = params.limits ? enforceLimits(params.limits, this.#platform.canLimitResources) : null;
    if (limits) undo.defer(() => limits.release());
    const persistent = this.#persistentSpec(params, sandbox);
    const spec = { ...prepared, directory, ...sandbox?.child, limits: limits ?? undefined, persistent };
    const process = this.#createProcess(params, spec, sandbox, limits);
    started = process;
    await this.#trackStart(this.#spawn(process, spec));
    // The start has succeeded: nothing is undone anymore.
    undo.move();
    claim?.releaseAtExit(process);

    if (sandbox) this.#registerSandbox(sandbox, process);
    if (limits) void process.closed.then(() => limits.release());
    if (listeners) {
      void sandbox?.listeners?.then((descriptors) => listeners.serve(descriptors));
      void process.closed.then(() => listeners.close());
    }
    if (network) void process.closed.then(() => network.close());
    return process;
  }

  /** Throws if a live process of application code has this id. */
  #reserveId(processId: string): void {
    if (!this.#options.isLibrary) return;
    if (this.#ids.has(processId))
      throw invalidRequest(`process ${processId} already exists`, { reason: "processExists" });
    this.#ids.add(processId);
  }

  /** Throws if this host cannot enforce these limits. */
  requireLimits(limits: ProcessLimits): void {
    enforceLimits(limits, this.#platform.canLimitResources).release();
  }

  #restore({ record, inherited }: InheritedProcess, sandbox: RestoredSandbox | null): RestoredProcess {
    const process = this.#restoreProcess(record, inherited, sandbox);
    const { sessionId, ownerId, handle } = record;
    const { isReleased, attachments } = inherited;
    const { terminalQueries, recordInput } = record.params;
    return {
      process,
      owner: { sessionId, ownerId, handle },
      isReleased,
      attachments,
      terminalQueries,
      recordInput,
      joinSandboxScope: sandbox?.joinScope,
    };
  }

  #restoreProcess(record: PersistentRecord, inherited: RestoredChild, sandbox: RestoredSandbox | null): LocalProcess {
    const { child, exit, isStdinClosed } = inherited;
    const { params, startedAtMs } = record;
    const log = new EventLog(this.#logOptions(params, true, record.ownerId));
    // Pins all restored output until the session has its own cursor: a client that was disconnected may need all of it.
    const beginning = log.cursor({ lossless: true, extraBytes: "unlimited" });
    restoreEventLog(log, inherited);
    const limits = params.limits;
    const restored: LocalProcess = new LocalProcess({ ...params, env: {} }, params.tty ? inherited.size : null, {
      log,
      clock: this.#clock,
      killer: this.#killer,
      sandboxType: sandbox?.sandboxType ?? "none",
      isDenial: sandbox?.isDenial,
      limitExceededBy: (signal) => (signal === SIGXCPU && limits?.cpuTimeMs !== undefined ? "cpuTimeMs" : null),
      onClose: () => this.#forget(restored),
      startedAtMs,
      restored: { isStdinClosed, hasExited: exit !== null },
    });
    restored.attach(child);
    if (!log.isClosed) this.#register(restored);
    if (sandbox) this.#endWithProcess(sandbox, restored);
    // Runs after the session has added its cursor.
    setImmediate(() => {
      beginning.close();
      inherited.resume(restored.childEvents);
    });
    return restored;
  }

  #logOptions({ tty }: Pick<StartParams, "tty">, isPersistent: boolean, ownerId: string | undefined): EventLogOptions {
    const { eventLogLimits, budget, snapshotBudget, principalMemories, isLibrary } = this.#options;
    const limits = isPersistent
      ? {
          ...eventLogLimits,
          retainedBytes: PERSISTENT_RETAINED_BYTES,
          retainedChunks: PERSISTENT_RETAINED_CHUNKS,
        }
      : eventLogLimits;
    const own = ownerId === undefined ? undefined : principalMemories?.forLog(ownerId);
    const budgets = { budget: own?.retention ?? budget, snapshotBudget: own?.snapshots ?? snapshotBudget };
    // Application code may keep a chunk, and the terminal responder reads it after the log.
    const ownsChunks = !isLibrary && !tty;
    return { clock: this.#clock, limits, ...budgets, ownsChunks };
  }

  #persistentSpec(
    { persistentOwner, ...params }: StartParams,
    sandbox: SandboxedStart | null,
  ): ChildSpec["persistent"] {
    if (persistentOwner === undefined) return undefined;
    const startedAtMs = this.#clock.now();
    const persistent = { ...params, lifetime: "persistent" } as const;
    const record = encodeRecord(persistentOwner, startedAtMs, persistent, sandbox?.resources);
    return { record, startedAtMs, maxOutputBytes: params.limits?.outputBytes ?? Number.POSITIVE_INFINITY };
  }

  #createProcess(
    params: StartParams,
    spec: ChildSpec,
    sandbox: SandboxedStart | null,
    limits: EnforcedLimits | null,
  ): LocalProcess {
    const created: LocalProcess = new LocalProcess(params, spec.terminal, {
      log: new EventLog(this.#logOptions(params, spec.persistent !== undefined, params.ownerId)),
      clock: this.#clock,
      killer: this.#killer,
      sandboxType: sandbox?.sandboxType ?? sandboxLabel(params),
      droppedEnv: params.secretGuard && filteredSecretNames(params, this.#hostEnv),
      limitExceededBy: (signal) => limits?.limitExceededBy(signal) ?? null,
      isDenial: sandbox?.isDenial,
      onClose: () => this.#forget(created),
      startedAtMs: spec.persistent?.startedAtMs,
    });
    return created;
  }

  /** Spawns the child and registers the process. */
  async #spawn(created: LocalProcess, spec: ChildSpec): Promise<void> {
    this.#openCgroups([]);
    try {
      const child = await this.#platform.spawn(spec, created.childEvents);
      created.attach(child);
      if (!created.log.isClosed) this.#register(created);
    } catch (error) {
      created.log.dispose();
      if (error instanceof SpawnError) throw internalError(error.message, { cause: error });
      throw error;
    }
  }

  /** Makes shutdown wait for a start, so that it misses no process. */
  async #trackStart(starting: Promise<void>): Promise<void> {
    this.#starting.add(starting);
    try {
      await starting;
    } finally {
      this.#starting.delete(starting);
    }
  }

  /** Removes the sandbox after the process has closed. Shutdown waits for it. */
  #registerSandbox(sandbox: SandboxedStart, process: LocalProcess): void {
    sandbox.started(process.pid);
    this.#endWithProcess(sandbox, process);
  }

  #endWithProcess(sandbox: Pick<SandboxedStart, "ended">, process: LocalProcess): void {
    const removed = process.closed.then(() => sandbox.ended());
    this.#sandboxes.set(removed, process);
    void removed.finally(() => this.#sandboxes.delete(removed));
  }

  /** Called when code outside of this backend ran a command that may leave orphans. */
  trackOrphans(): void {
    this.#orphans?.track();
  }

  async list(options: CallOptions = {}): Promise<ProcessListing[]> {
    checkCall("list", options);
    options.signal?.throwIfAborted();
    return [...this.#open].map((process) => process.listing());
  }

  usage(): Promise<ReadonlyMap<number, TreeUsage>> {
    return this.#usage.sample();
  }

  /**
   * Terminates all processes with a grace period of `graceMs`, then kills the orphans of unknown processes. Resolves when
   * all processes are closed; may be called again. If a process cannot be killed, it still does all of this, then rejects.
   */
  async shutdown(graceMs: number, reason: ExitReason = "terminated"): Promise<void> {
    await this.#endMatching(() => true, graceMs, reason);
  }

  /** Like `shutdown`, but leaves persistent processes running. */
  async endNonPersistent(graceMs: number): Promise<void> {
    await this.#endMatching(({ persistent }) => persistent === null, graceMs, "terminated");
  }

  async #endMatching(
    shouldEnd: (process: LocalProcess) => boolean,
    graceMs: number,
    reason: ExitReason,
  ): Promise<void> {
    const failures: unknown[] = [];
    const open = () => [...this.#open].filter(shouldEnd);
    const end = (process: LocalProcess) =>
      this.#end(process, graceMs, reason).catch((error: unknown) => {
        failures.push(error);
        this.#forget(process);
      });
    // Also ends processes that start meanwhile.
    while (open().length > 0 || this.#starting.size > 0) {
      await Promise.allSettled(this.#starting);
      await Promise.all(open().map(end));
    }
    const removals = [...this.#sandboxes].filter(([, process]) => shouldEnd(process));
    await Promise.allSettled(removals.map(([removed]) => removed));
    await this.#options.settleSandboxes?.();
    const orphans = (await this.#orphans?.endAll()) ?? [];
    if (orphans.length > 0) this.#options.onOrphansEnded?.(orphans);
    removeEmptyCgroups();
    if (failures.length > 0) throw failures[0];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed = true;
    await this.shutdown(0);
    this.#orphans?.close();
  }

  async #end(process: LocalProcess, graceMs: number, reason: ExitReason): Promise<void> {
    const { child } = process;
    if (!child) return;
    await process.terminateWithReason(reason, { type: "graceful", timeoutMs: graceMs });
    await Promise.race([process.closed, sleep(this.#clock, LAST_OUTPUT_MS)]);
    child.closeStreams();
    const closing = `process ${process.processId} to close`;
    await withDeadline(process.closed, CLOSE_DEADLINE_MS, closing, this.#clock);
  }

  #register(opened: LocalProcess): void {
    if (this.#open.size === 0) process.on("exit", this.#onExit);
    this.#open.add(opened);
    this.#orphans?.track();
  }

  #forget(closed: LocalProcess): void {
    this.#ids.delete(closed.processId);
    if (!this.#open.delete(closed)) return;
    if (this.#open.size === 0) process.off("exit", this.#onExit);
    this.#orphans?.track();
  }

  /** Reports each orphan once, although several trees may kill it at the same time. */
  #reportUnclaimed(pid: number, startTime: number): void {
    if (this.#lastUnclaimed.get(pid) === startTime) return;
    this.#lastUnclaimed.delete(pid);
    this.#lastUnclaimed.set(pid, startTime);
    const [oldest] = this.#lastUnclaimed.keys();
    if (oldest !== undefined && this.#lastUnclaimed.size > MAX_UNCLAIMED_REPORTS) this.#lastUnclaimed.delete(oldest);
    this.#options.onOrphansEnded?.([{ pid, command: readCommandLine(pid) }]);
  }

  /** Kills all process trees when this OS process exits. The parent-death signal kills only the leaders. */
  #killAllNow(): void {
    for (const { child } of this.#open) if (child && !child.persistent) this.#killer.killNow(child);
  }

  /** Returns null for a start without a network policy. Connections to its listeners must come from the process tree. */
  async #createNetwork(params: StartParams, started: () => LocalProcess | null): Promise<ProcessNetwork | null> {
    const { credentials = [] } = params;
    if (credentials.length > 0 && (!isNetworkEnforced(params) || params.networkProxy === undefined))
      throw invalidParams(
        `credentials \`${credentials.join(", ")}\` require networkProxy, enforceManagedNetwork and a sandbox`,
      );
    if (params.networkProxy === undefined) return null;
    if (params.lifetime === "persistent")
      throw invalidParams(
        'lifetime "persistent" is not supported with networkProxy: the proxy ends with its server; use lifetime "server"',
      );
    const { createNetwork } = this.#options;
    if (!createNetwork) throw invalidParams("networkProxy is not supported by this backend");
    const tree = () => {
      const child = started()?.child;
      return child ? this.#killer.tree(child) : [];
    };
    const connections = new TreeConnections({ clock: this.#clock, tree });
    return createNetwork(params, (connection) => connections.includes(connection));
  }

  /** Returns the network of a sandboxed process that may reach only proxies: its own, or those of its environment. */
  async #enforcedNetwork(
    params: StartParams,
    proxy: ProcessNetwork | null,
    env: Record<string, string>,
  ): Promise<SandboxNetwork> {
    if (params.lifetime === "persistent")
      throw invalidParams(
        'lifetime "persistent" is not supported with enforceManagedNetwork: the way out of the sandbox ends with the server; use lifetime "server"',
      );
    if (proxy) return proxiedNetwork(proxy, { hasSocks: params.networkProxy?.proxy.enableSocks5 ?? false });
    if (!this.#options.routeProxies) throw invalidParams("enforceManagedNetwork is not supported by this backend");
    return this.#options.routeProxies(env);
  }

  /** Returns null for a start without a sandbox. */
  async #resolveSandbox(start: SandboxedStartParams, network: SandboxNetwork | null): Promise<SandboxedStart | null> {
    if (start.sandbox === undefined || start.sandbox === null) {
      const { sandboxRequirement: requirement } = start;
      if (requirement) throw sandboxRequirementError(requirement, "the start requests no sandbox");
      return null;
    }
    const refusal = network?.refusal ?? null;
    const argv = refusal === null ? start.argv : refusalCommand(refusal);
    const resolved = await this.#options.resolveSandbox?.(start.sandbox, { ...start, argv });
    if (!resolved) throw invalidParams("sandbox intent cannot be enforced on this executor");
    if (resolved.type === "none" ? network !== null : network !== null && !resolved.listeners)
      throw invalidParams("sandbox intent cannot be enforced on this executor: it has no managed network");
    if (resolved.type === "none") return null;
    return refusal === null ? resolved : { ...resolved, isDenial: () => true };
  }

  get #hostEnv(): Record<string, string | undefined> {
    return this.#options.hostEnv ?? process.env;
  }
}

/** A persistent process of an earlier server, before it is restored. */
interface InheritedProcess {
  record: PersistentRecord;
  inherited: RestoredChild;
}

/** The sandbox type of an unsandboxed start. A caller that sandboxed the command itself names the type. */
function sandboxLabel({ sandbox, sandboxType }: StartParams): SandboxType {
  return sandbox === undefined || sandbox === null ? (sandboxType ?? "none") : "none";
}

/** Number of orphans that may be killed at the same time and still be reported once each. */
const MAX_UNCLAIMED_REPORTS = 100;
/** Wait for the last output of a terminated process, which usually arrives at once. */
const LAST_OUTPUT_MS = 100;
/** A killed process closes well before this, unless the host is overloaded. */
const CLOSE_DEADLINE_MS = 5000;

const { SIGKILL, SIGXCPU } = constants.signals;
