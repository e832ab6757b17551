import { constants } from "node:os";
import { type Clock, systemClock } from "../async/clock.ts";
import type { HostBackend } from "../exec/backend/host-backend.ts";
import type { RestoredProcess } from "../exec/backend/persistent-process.ts";
import { PERSISTENT_RETAINED_BYTES, PERSISTENT_RETAINED_CHUNKS } from "../exec/backend/persistent-process.ts";
import type { ProcessLimits } from "../exec/backend/process-limits.ts";
import { ProcessNames } from "../exec/backend/process-names.ts";
import type { RestoredSandbox, SandboxedStart, SandboxResources } from "../exec/backend/resolved-sandbox.ts";
import { startDetails, withCallErrors } from "../exec/call-error.ts";
import type { CallOptions, ExecBackend, ProcessListing, StartParams, TreeUsage } from "../exec/exec-process.ts";
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
import { isNetworkEnforced, SandboxListeners } from "./enforced-network.ts";
import { LocalProcess } from "./local-process.ts";
import { OpenProcesses } from "./open-processes.ts";
import type { RestoredChild } from "./persistent/persistent-child.ts";
import { decodeRecord, encodeRecord, type PersistentRecord } from "./persistent/persistent-record.ts";
import { restoreEventLog } from "./persistent/restore-event-log.ts";
import type { ProcessPlatform } from "./platform.ts";
import { SpawnError } from "./spawn-error.ts";
import type { ConfinementOptions } from "./start-confinement.ts";
import { createNetwork, enforcedNetwork, resolveStartSandbox, sandboxLabel } from "./start-confinement.ts";
import type { Orphan } from "./tree/orphan-tracker.ts";
import { UsageSampler } from "./tree/usage-sampler.ts";
import { openVerifiedDirectory } from "./verified-directory.ts";

export interface LocalBackendOptions extends ConfinementOptions {
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
  /** Takes over the sandbox of a persistent process with this pid. Required with a supervisor. */
  restoreSandbox?: ((resources: SandboxResources, pid: number) => Promise<RestoredSandbox>) | undefined;
}

export class LocalBackend implements ExecBackend, HostBackend, AsyncDisposable {
  readonly #options: LocalBackendOptions;
  readonly #clock: Clock;
  readonly #platform: ProcessPlatform;
  readonly #open: OpenProcesses;
  readonly #usage: UsageSampler;
  /** Ids of all starting and open processes. Used only if `isLibrary` is set. */
  readonly #ids = new Set<string>();
  /** Names of live processes. Used only if `isLibrary` is set; a server has its own, per principal. */
  readonly #names = new ProcessNames();
  #hasCgroups = false;
  #disposed = false;

  /** @internal */
  constructor(platform: ProcessPlatform, options: LocalBackendOptions) {
    this.#platform = platform;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const { subreaper = false, onOrphansEnded, settleSandboxes } = options;
    this.#open = new OpenProcesses(platform, {
      clock: this.#clock,
      subreaper,
      onOrphansEnded,
      settleSandboxes,
      onEndFailed: (process) => this.#forget(process),
    });
    this.#usage = new UsageSampler({
      clock: this.#clock,
      leaders: () => this.#open.list().flatMap(({ child }) => child ?? []),
      tagOf: platform.table.tagOf,
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
    // Runs without a pause until the caller has the processes: their events begin with the next tick of the event loop.
    const restored = readable.map((process, at) => this.#restore(process, sandboxes[at] ?? null));
    this.#openCgroups(readable.flatMap(({ inherited }) => inherited.child.treeTag ?? []));
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

  #start(params: StartParams): Promise<LocalProcess> {
    const { signal } = params;
    const starting = this.#startSteps(params);
    return signal ? abortableStart(starting, signal) : starting;
  }

  /** Prepares, sandboxes, spawns and registers a process. A step that fails undoes the steps before it. */
  async #startSteps(params: StartParams): Promise<LocalProcess> {
    if (this.#disposed) throw invalidRequest("start process: the backend is closed");
    params.signal?.throwIfAborted();
    const { lifetime = "session" } = params;
    if (this.#options.isLibrary && lifetime !== "session")
      throw invalidParams(`lifetime \`${lifetime}\`: not supported by a local backend; requires procwire serve`);
    using undo = new DisposableStack();
    const { processId, cwdIdentity, name } = params;
    this.#reserveId(processId);
    undo.defer(() => this.#ids.delete(processId));
    const reservation = this.#options.isLibrary && name !== undefined ? this.#names.reserve("", name, processId) : null;
    undo.defer(() => reservation?.release());
    let started: LocalProcess | null = null;
    const tree = () => (started?.child ? this.#open.killer.tree(started.child) : []);
    const network = await createNetwork(params, this.#options, { clock: this.#clock, tree });
    undo.defer(() => network?.close());
    const childEnv = buildChildEnv(params, this.#hostEnv);
    const enforced = isNetworkEnforced(params)
      ? await enforcedNetwork(params, this.#options, { proxy: network, env: childEnv })
      : null;
    const listeners = enforced && new SandboxListeners(enforced);
    undo.defer(() => listeners?.close());
    const variables = enforced ? enforced.variables : await network?.listen();
    const prepared = childSpecOf(params, variables ? { ...childEnv, ...variables } : childEnv);
    // Stays open until the start has ended.
    using verified = cwdIdentity === undefined ? null : openVerifiedDirectory(prepared.cwd, cwdIdentity);
    const directory = verified?.fd;

    const { env } = prepared;
    const managed = { listenPorts: listeners?.ports, readableFiles: network?.readableFiles };
    const sandbox = await resolveStartSandbox({ ...params, env, directory, ...managed }, this.#options, enforced);
    if (sandbox) undo.defer(() => sandbox.started(null));

    const limits = params.limits ? enforceLimits(params.limits, this.#platform.canLimitResources) : null;
    if (limits) undo.defer(() => limits.release());
    const persistent = this.#persistentSpec(params, sandbox);
    const spec = { ...prepared, directory, ...sandbox?.child, limits: limits ?? undefined, persistent };
    const process = this.#createProcess(params, spec, sandbox, limits);
    started = process;
    await this.#open.trackStart(this.#spawn(process, spec));
    // The start has succeeded: nothing is undone anymore.
    undo.move();
    reservation?.releaseAtExit(process);

    sandbox?.started(process.pid);
    if (sandbox) this.#open.endWithProcess(sandbox, process);
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
      killer: this.#open.killer,
      sandboxType: sandbox?.sandboxType ?? "none",
      isDenial: sandbox?.isDenial,
      limitExceededBy: (signal) => (signal === SIGXCPU && limits?.cpuTimeMs !== undefined ? "cpuTimeMs" : null),
      onClose: () => this.#forget(restored),
      startedAtMs,
      restored: { isStdinClosed, hasExited: exit !== null },
    });
    restored.attach(child);
    if (!log.isClosed) this.#open.add(restored);
    if (sandbox) this.#open.endWithProcess(sandbox, restored);
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
    return { record, startedAtMs, maxOutputBytes: params.limits?.outputBytes ?? null };
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
      killer: this.#open.killer,
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
      if (!created.log.isClosed) this.#open.add(created);
    } catch (error) {
      created.log.dispose();
      if (error instanceof SpawnError) throw internalError(error.message, { cause: error });
      throw error;
    }
  }

  #forget(closed: LocalProcess): void {
    this.#ids.delete(closed.processId);
    this.#open.delete(closed);
  }

  /** Called when code outside of this backend ran a command that may leave orphans. */
  trackOrphans(): void {
    this.#open.trackOrphans();
  }

  async list(options: CallOptions = {}): Promise<ProcessListing[]> {
    checkCall("list", options);
    options.signal?.throwIfAborted();
    return this.#open.list().map((process) => process.listing());
  }

  usage(): Promise<ReadonlyMap<number, TreeUsage>> {
    return this.#usage.sample();
  }

  /**
   * Terminates all processes with a grace period of `graceMs`, then kills the orphans of unknown processes. Resolves when
   * all processes are closed; may be called again. If a process cannot be killed, it still does all of this, then rejects.
   */
  async shutdown(graceMs: number): Promise<void> {
    await this.#open.end(() => true, graceMs);
  }

  /** Like `shutdown`, but leaves persistent processes running. */
  async endNonPersistent(graceMs: number): Promise<void> {
    await this.#open.end(({ persistent }) => persistent === null, graceMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed = true;
    await this.shutdown(0);
    this.#open.close();
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

const { SIGKILL, SIGXCPU } = constants.signals;
