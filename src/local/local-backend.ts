import { constants } from "node:os";
import { isAbsolute } from "node:path";
import { fileURLToPath } from "node:url";
import { type Clock, sleep, systemClock } from "../async/clock.ts";
import { withDeadline } from "../async/deadline.ts";
import type { HostBackend } from "../exec/backend/host-backend.ts";
import {
  PERSISTENT_RETAINED_BYTES,
  PERSISTENT_RETAINED_CHUNKS,
  type RestoredProcess,
} from "../exec/backend/persistent-process.ts";
import type { ProcessLimits } from "../exec/backend/process-limits.ts";
import type { ResolvedSandbox, SandboxedStart } from "../exec/backend/resolved-sandbox.ts";
import { withCallErrors } from "../exec/call-error.ts";
import type {
  CallOptions,
  ExecBackend,
  ExitReason,
  ProcessListing,
  SandboxType,
  StartParams,
} from "../exec/exec-process.ts";
import { DEFAULT_TERMINAL_SIZE } from "../exec/exec-process.ts";
import { EventLog, type EventLogLimits, type EventLogOptions } from "../exec/log/event-log.ts";
import type { RetentionBudget } from "../exec/log/retention-budget.ts";
import { abortableStart } from "../exec/run/abortable-start.ts";
import { internalError, invalidParams, invalidRequest } from "../protocol/errors.ts";
import type { ChildSpec } from "./child.ts";
import { buildChildEnv, filteredSecretNames } from "./child-env.ts";
import { type EnforcedLimits, enforceLimits } from "./enforced-limits.ts";
import { LocalProcess } from "./local-process.ts";
import type { RestoredChild } from "./persistent/persistent-child.ts";
import { decodeRecord, encodeRecord, type PersistentRecord } from "./persistent/persistent-record.ts";
import { restoreEventLog } from "./persistent/restore-event-log.ts";
import type { ProcessPlatform } from "./platform.ts";
import { SpawnError, spawnErrorFromRequest } from "./spawn-error.ts";
import { removeEmptyCgroups } from "./tree/cgroups.ts";
import { type Orphan, OrphanTracker, readCommandLine } from "./tree/orphan-tracker.ts";
import { TreeKiller } from "./tree/tree-kill.ts";
import { openVerifiedDirectory } from "./verified-directory.ts";

/** The start of a sandboxed process, as the sandbox resolver receives it. */
export type SandboxedStartParams = StartParams & {
  /** A descriptor of the working directory. The caller owns it and keeps it open until the start has ended. */
  directory?: number | undefined;
};

export interface LocalBackendOptions {
  clock?: Clock;
  eventLogLimits?: Partial<EventLogLimits>;
  /** Bounds the retained output of all processes. */
  budget?: RetentionBudget;
  /** Bounds the snapshot data of all processes. */
  snapshotBudget?: RetentionBudget;
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
  hostEnv?: Record<string, string | undefined>;
  /** Resolves after the sandbox files shared by several processes are removed, as far as possible. */
  settleSandboxes?: (() => Promise<void>) | undefined;
  /** Resolves a sandbox request; null if it is unsupported. Without this option every request is rejected. */
  resolveSandbox?: ((request: unknown, start: SandboxedStartParams) => Promise<ResolvedSandbox | null>) | undefined;
}

export class LocalBackend implements ExecBackend, HostBackend, AsyncDisposable {
  readonly #options: LocalBackendOptions;
  readonly #clock: Clock;
  readonly #platform: ProcessPlatform;
  readonly #killer: TreeKiller;
  readonly #orphans: OrphanTracker | null;
  /** Processes that are started and not yet closed. */
  readonly #open = new Set<LocalProcess>();
  readonly #starting = new Set<Promise<void>>();
  /** Cleanups of sandboxes; each resolves once nothing of the sandbox is left. */
  readonly #sandboxes = new Set<Promise<void>>();
  /** Ids of all starting and open processes. Used only if `isLibrary` is set. */
  readonly #ids = new Set<string>();
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
  }

  /** Why persistent processes are unavailable; null if they are available. */
  get persistenceUnavailableReason(): string | null {
    const { supervisor } = this.#platform;
    return supervisor ? supervisor.unavailableReason : "this server runs without --supervised";
  }

  /** Restores the persistent processes of earlier servers. Kills and counts processes with unreadable state. */
  restorePersistent(): { restored: RestoredProcess[]; unreadable: number } {
    const restored: RestoredProcess[] = [];
    const tags: number[] = [];
    let unreadable = 0;
    for (;;) {
      const taken = this.#restoreNext(tags);
      if (taken === null) {
        this.#openCgroups(tags);
        return { restored, unreadable };
      }
      if (taken === "unreadable") unreadable++;
      else restored.push(taken);
    }
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

  /** Adds the tree tag of the restored process to `tags`. */
  #restoreNext(tags: number[]): RestoredProcess | "unreadable" | null {
    const inherited = this.#platform.supervisor?.takeRestored();
    if (!inherited || inherited === "unreadable") return inherited ?? null;
    const record = decodeRecord(inherited.record);
    const { child } = inherited;
    if (!record) {
      child.signalGroup(SIGKILL);
      child.persistent?.remove();
      child.closeStreams();
      return "unreadable";
    }
    tags.push(child.treeTag);
    const process = this.#restore(record, inherited);
    const { sessionId, ownerId, handle } = record;
    const { isReleased, attachments } = inherited;
    const { terminalQueries, recordInput } = record.params;
    const owner = { sessionId, ownerId, handle };
    return { process, owner, isReleased, attachments, terminalQueries, recordInput };
  }

  /** Unavailable features, each with its reason. */
  degradedComponents(): string[] {
    return [...this.#platform.degraded, ...(this.#options.degraded ?? [])];
  }

  start(params: StartParams): Promise<LocalProcess> {
    if (!this.#options.isLibrary) return this.#start(params);
    return withCallErrors({ method: "process/start", argv: params.argv }, () => this.#start(params));
  }

  async #start({ signal, ...params }: StartParams): Promise<LocalProcess> {
    if (this.#disposed) throw invalidRequest("start process: the backend is closed");
    signal?.throwIfAborted();
    return abortableStart(this.#startSteps(params), signal);
  }

  /** Prepares, sandboxes, spawns and registers a process. A step that fails undoes the steps before it. */
  async #startSteps(params: StartParams): Promise<LocalProcess> {
    using undo = new DisposableStack();
    const { processId, cwdIdentity } = params;
    this.#reserveId(processId);
    undo.defer(() => this.#ids.delete(processId));
    const prepared = this.#specOf(params, buildChildEnv(params, this.#hostEnv));
    // Stays open until the start has ended.
    using verified = cwdIdentity === undefined ? null : openVerifiedDirectory(prepared.cwd, cwdIdentity);
    const directory = verified?.fd;

    const sandbox = await this.#resolveSandbox({ ...params, env: prepared.env, directory });
    if (sandbox) undo.defer(() => sandbox.started(null));

    const limits = params.limits ? enforceLimits(params.limits, this.#platform.canLimitResources) : null;
    if (limits) undo.defer(() => limits.release());
    const persistent = this.#persistentSpec(params);
    const spec = { ...prepared, directory, ...sandbox?.child, limits: limits ?? undefined, persistent };
    const process = this.#createProcess(params, spec, sandbox, limits);
    await this.#trackStart(this.#spawn(process, spec));
    // The start has succeeded: nothing is undone anymore.
    undo.move();

    if (sandbox) this.#registerSandbox(sandbox, process);
    if (limits) void process.closed.then(() => limits.release());
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

  #restore(record: PersistentRecord, inherited: RestoredChild): LocalProcess {
    const { child, exit, isStdinClosed } = inherited;
    const { params, startedAtMs } = record;
    const log = new EventLog(this.#logOptions(true));
    // Pins all restored output until the session has its own cursor: a client that was disconnected may need all of it.
    const beginning = log.cursor({ lossless: true, extraBytes: "unlimited" });
    restoreEventLog(log, inherited);
    const limits = params.limits;
    const restored: LocalProcess = new LocalProcess({ ...params, env: {} }, params.tty ? inherited.size : null, {
      log,
      clock: this.#clock,
      killer: this.#killer,
      sandboxType: "none",
      limitExceededBy: (signal) => (signal === SIGXCPU && limits?.cpuTimeMs !== undefined ? "cpuTimeMs" : null),
      onClose: () => this.#forget(restored),
      startedAtMs,
      restored: { isStdinClosed, hasExited: exit !== null },
    });
    restored.attach(child);
    if (!log.isClosed) this.#register(restored);
    // Runs after the session has added its cursor.
    setImmediate(() => {
      beginning.close();
      inherited.resume(restored.childEvents);
    });
    return restored;
  }

  #logOptions(isPersistent: boolean): EventLogOptions {
    const { eventLogLimits, budget, snapshotBudget } = this.#options;
    const limits = isPersistent
      ? {
          ...eventLogLimits,
          retainedBytes: PERSISTENT_RETAINED_BYTES,
          retainedChunks: PERSISTENT_RETAINED_CHUNKS,
        }
      : eventLogLimits;
    return { clock: this.#clock, limits, budget, snapshotBudget };
  }

  #persistentSpec({ persistentOwner, ...params }: StartParams): ChildSpec["persistent"] {
    if (persistentOwner === undefined) return undefined;
    const startedAtMs = this.#clock.now();
    const record = encodeRecord(persistentOwner, startedAtMs, { ...params, lifetime: "persistent" });
    return { record, startedAtMs, maxOutputBytes: params.limits?.outputBytes ?? Number.POSITIVE_INFINITY };
  }

  #createProcess(
    params: StartParams,
    spec: ChildSpec,
    sandbox: SandboxedStart | null,
    limits: EnforcedLimits | null,
  ): LocalProcess {
    const created: LocalProcess = new LocalProcess(params, spec.terminal, {
      log: new EventLog(this.#logOptions(spec.persistent !== undefined)),
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
  #registerSandbox(sandbox: SandboxedStart, { pid, closed }: LocalProcess): void {
    sandbox.started(pid);
    const removed = closed.then(() => sandbox.ended());
    this.#sandboxes.add(removed);
    void removed.finally(() => this.#sandboxes.delete(removed));
  }

  /** Called when code outside of this backend ran a command that may leave orphans. */
  trackOrphans(): void {
    this.#orphans?.track();
  }

  async list({ signal }: CallOptions = {}): Promise<ProcessListing[]> {
    signal?.throwIfAborted();
    return [...this.#open].map((process) => process.listing());
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
    await Promise.allSettled(this.#sandboxes);
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

  /** Returns null for a start without a sandbox. */
  async #resolveSandbox(start: SandboxedStartParams): Promise<SandboxedStart | null> {
    if (start.sandbox === undefined || start.sandbox === null) return null;
    const resolved = await this.#options.resolveSandbox?.(start.sandbox, start);
    if (!resolved) throw invalidParams("sandbox intent cannot be enforced on this executor");
    return resolved.type === "none" ? null : resolved;
  }

  get #hostEnv(): Record<string, string | undefined> {
    return this.#options.hostEnv ?? process.env;
  }

  #specOf(params: StartParams, env: Record<string, string>): ChildSpec {
    const [file, ...args] = params.argv;
    if (file === undefined) throw invalidParams("argv must not be empty");
    const reject = (message: string) => {
      throw internalError(message, { cause: spawnErrorFromRequest(message, file) });
    };
    if (file === "") reject(`missing program for ${params.tty ? "PTY" : "pipe"} spawn`);
    const argv0 = params.arg0 ?? file;
    if ([file, argv0, ...args].some(hasNul)) reject("nul byte found in provided data");
    if (Object.entries(env).flat().some(hasNul)) reject("data provided contains a nul byte");
    const cwd = nativePath(params.cwd);
    if (hasNul(cwd)) reject("nul byte found in provided data");
    return {
      file,
      argv: [argv0, ...args],
      cwd,
      env,
      terminal: params.tty ? (params.size ?? DEFAULT_TERMINAL_SIZE) : null,
      pipeStdin: params.pipeStdin ?? false,
      descriptors: [],
    };
  }
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

const hasNul = (text: string) => text.includes("\0");

function nativePath(cwd: string): string {
  if (isAbsolute(cwd)) return cwd;
  if (!/^file:/i.test(cwd)) throw invalidParams(`cwd \`${cwd}\` is neither an absolute path nor a file: URI`);
  try {
    return fileURLToPath(cwd);
  } catch {
    throw invalidParams(
      `cwd URI \`${cwd}\` is not valid on this exec-server host: '${cwd}' is invalid on '${process.platform}'`,
    );
  }
}
