import { constants } from "node:os";
import { isAbsolute } from "node:path";
import { fileURLToPath } from "node:url";
import type { Clock } from "../async/clock.ts";
import { sleep, systemClock } from "../async/clock.ts";
import { withDeadline } from "../async/deadline.ts";
import type { ProcessLimits } from "../exec/backend/process-limits.ts";
import { asked } from "../exec/call-error.ts";
import type {
  CallOptions,
  ExecBackend,
  ExitReason,
  ProcessListing,
  SandboxType,
  StartParams,
} from "../exec/exec-process.ts";
import { DEFAULT_TERMINAL_SIZE } from "../exec/exec-process.ts";
import type { HostBackend } from "../exec/host-backend.ts";
import { KEPT_RETAINED_BYTES, KEPT_RETAINED_CHUNKS, type RestoredProcess } from "../exec/kept-process.ts";
import type { EventLogLimits } from "../exec/log/event-log.ts";
import { EventLog, type EventLogOptions } from "../exec/log/event-log.ts";
import type { RetentionBudget } from "../exec/log/retention-budget.ts";
import type { ResolvedSandbox, ResolvedWalls } from "../exec/resolved-sandbox.ts";
import { startUntil } from "../exec/run/abortable-start.ts";
import { internalError, invalidParams, invalidRequest } from "../protocol/errors.ts";
import type { ChildSpec } from "./child.ts";
import { childEnvironment, droppedSecrets } from "./child-env.ts";
import { type EnforcedLimits, enforceLimits } from "./enforced-limits.ts";
import type { InheritedChild } from "./kept-child.ts";
import { LocalProcess } from "./local-process.ts";
import { type KeptRecord, readRecord, writeRecord } from "./persistent/persistent-record.ts";
import { restoreLog } from "./persistent/restore-event-log.ts";
import type { LocalMachine } from "./platform.ts";
import { SpawnError, spawnErrorFromRequest } from "./spawn-error.ts";
import { removeEmptyCgroups } from "./tree/cgroups.ts";
import type { Orphan } from "./tree/orphan-tracker.ts";
import { commandOf, OrphanKeeper } from "./tree/orphan-tracker.ts";
import { TreeKiller } from "./tree/tree-kill.ts";
import { openExactDirectory } from "./verified-directory.ts";

/** The program that gets walls. */
export type SandboxedStart = StartParams & {
  /** A descriptor of the exact directory to start in; the caller's, open until the start has ended. */
  directory?: number | undefined;
};

export interface LocalBackendOptions {
  clock?: Clock;
  eventLogLimits?: Partial<EventLogLimits>;
  /** Bounds the retained output of all processes together. */
  budget?: RetentionBudget;
  /** Bounds what is kept for snapshots of all processes together. */
  snapshotBudget?: RetentionBudget;
  /** Orphans of started programs come to this program, which reaps them. Changes the whole program; for a server. */
  subreaper?: boolean;
  /** What else is degraded around this backend, each with its reason. */
  degraded?: readonly string[];
  /**
   * For a program's own calls: refuses an id that a live process has, and an error has the caller's lines. Not below a
   * server, where each session has ids of its own and no wire carries those lines, which take a tenth of a start's time.
   */
  calledDirectly?: boolean;
  /** Called when orphans are ended that could not be attributed to any process. */
  onOrphansEnded?: (orphans: Orphan[]) => void;
  /** Called once when processes could not get a cgroup each although they should. */
  onCgroupFailed?: (error: string) => void;
  /** Where inherited variables come from. */
  hostEnv?: Record<string, string | undefined>;
  /** Resolves when what walls left on the host beyond a single process is removed, as far as possible now. */
  settleSandboxes?: (() => Promise<void>) | undefined;
  /** Turns a sandbox intent into walls, or null when it cannot; without it every intent is refused. */
  resolveSandbox?: ((intent: unknown, start: SandboxedStart) => Promise<ResolvedSandbox | null>) | undefined;
}

export class LocalBackend implements ExecBackend, HostBackend, AsyncDisposable {
  readonly #options: LocalBackendOptions;
  readonly #clock: Clock;
  readonly #machine: LocalMachine;
  readonly #killer: TreeKiller;
  readonly #orphans: OrphanKeeper | null;
  /** Started and not yet closed. */
  readonly #open = new Set<LocalProcess>();
  readonly #starting = new Set<Promise<void>>();
  /** Each resolves once nothing is left of the walls around a process. */
  readonly #walls = new Set<Promise<void>>();
  /** Ids of all processes that are starting or open, where they must be unique. */
  readonly #ids = new Set<string>();
  /** Start times of the last unclaimed orphans that were reported, by pid. */
  readonly #lastUnclaimed = new Map<number, number>();
  #hasCgroups = false;
  #disposed = false;
  readonly #onExit = () => this.#killAllNow();

  /** @internal */
  constructor(machine: LocalMachine, options: LocalBackendOptions) {
    this.#machine = machine;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const { table, reaper } = machine;
    this.#orphans =
      reaper && options.subreaper ? new OrphanKeeper({ reaper, table, clock: this.#clock }) : null;
    this.#killer = new TreeKiller({
      table,
      clock: this.#clock,
      subreaper: this.#orphans !== null,
      onUnclaimed: ({ pid, startTime }) => this.#tellUnclaimed(pid, startTime),
      keeperPid: machine.keeper?.pid,
    });
  }

  /** Why processes cannot outlive this program; null: they can. */
  get whyNotKept(): string | null {
    const { keeper } = this.#machine;
    return keeper ? keeper.whyNot : "this server runs without --keep";
  }

  /** Everything that earlier servers below the same keeper left. Those that cannot be read are ended, and counted. */
  takeKept(): { restored: RestoredProcess[]; unreadable: number } {
    const restored: RestoredProcess[] = [];
    const marks: number[] = [];
    let unreadable = 0;
    for (;;) {
      const taken = this.#takeOne(marks);
      if (taken === null) {
        this.#openCgroups(marks);
        return { restored, unreadable };
      }
      if (taken === "unreadable") unreadable++;
      else restored.push(taken);
    }
  }

  /** Before the first process. */
  #openCgroups(keptMarks: readonly number[]): void {
    if (this.#hasCgroups || !this.#options.subreaper) return;
    this.#hasCgroups = true;
    this.#machine.openCgroups?.({
      keptMarks,
      onFailure: (error) => this.#options.onCgroupFailed?.(error),
    });
  }

  /** Adds its mark to `marks`. */
  #takeOne(marks: number[]): RestoredProcess | "unreadable" | null {
    const inherited = this.#machine.keeper?.take();
    if (!inherited || inherited === "unreadable") return inherited ?? null;
    const record = readRecord(inherited.record);
    const { child } = inherited;
    if (!record) {
      child.signalGroup(SIGKILL);
      child.kept?.forget();
      child.cut();
      return "unreadable";
    }
    marks.push(child.mark);
    const process = this.#restore(record, inherited);
    const { sessionId, ownerId, handle } = record;
    const { hasLeft, attachments } = inherited;
    const { terminalQueries, recordInput } = record.params;
    const owner = { sessionId, ownerId, handle };
    return { process, owner, hasLeft, attachments, terminalQueries, recordInput };
  }

  /** What is degraded here, each with its reason; empty when all is well. */
  degraded(): string[] {
    return [...this.#machine.degraded, ...(this.#options.degraded ?? [])];
  }

  start(params: StartParams): Promise<LocalProcess> {
    if (!this.#options.calledDirectly) return this.#startUntilAborted(params);
    return asked({ method: "process/start", argv: params.argv }, () => this.#startUntilAborted(params));
  }

  async #startUntilAborted(params: StartParams): Promise<LocalProcess> {
    if (this.#disposed) throw invalidRequest("this backend has been closed; it starts no more processes");
    const { signal, ...rest } = params;
    signal?.throwIfAborted();
    return startUntil(this.#startUnique(rest), signal);
  }

  async #startUnique(params: StartParams): Promise<LocalProcess> {
    const { processId } = params;
    if (this.#options.calledDirectly) {
      if (this.#ids.has(processId)) throw invalidRequest(`process ${processId} already exists`);
      this.#ids.add(processId);
    }
    try {
      return await this.#startBehindWalls(params);
    } catch (error) {
      this.#ids.delete(processId);
      throw error;
    }
  }

  async #startBehindWalls(params: StartParams): Promise<LocalProcess> {
    const env = childEnvironment(params, this.#hostEnv);
    const named = this.#specOf(params, env);
    const { cwdIdentity } = params;
    using held = cwdIdentity === undefined ? null : openExactDirectory(named.cwd, cwdIdentity);
    const spec = held ? { ...named, directory: held.fd } : named;
    const sandbox = await this.#resolveSandbox({ ...params, env, directory: held?.fd });
    // Awaited here, so that the directory stays open until the start has ended.
    if (sandbox.type === "none") return await this.#start(params, spec, null);
    try {
      const process = await this.#start(params, { ...spec, ...sandbox.child }, sandbox);
      sandbox.started(process.pid);
      const takenDown = process.closed.then(() => sandbox.ended());
      this.#walls.add(takenDown);
      void takenDown.finally(() => this.#walls.delete(takenDown));
      return process;
    } catch (error) {
      sandbox.started(null);
      throw error;
    }
  }

  /** Throws when processes here cannot be held to these. */
  requireLimits(limits: ProcessLimits): void {
    enforceLimits(limits, this.#machine.canLimitResources).release();
  }

  #restore(record: KeptRecord, inherited: InheritedChild): LocalProcess {
    const { child, exit, isStdinClosed } = inherited;
    const { params, startedAtMs } = record;
    const log = new EventLog(this.#logOptions(true));
    // Nothing is evicted before the session that holds it allows it: a client that was away may need all of it.
    const beginning = log.cursor({ holding: true, extraBytes: Number.POSITIVE_INFINITY });
    restoreLog(log, inherited);
    const limits = params.limits;
    const restored: LocalProcess = new LocalProcess(
      { ...params, env: {} },
      params.tty ? inherited.size : null,
      {
        log,
        clock: this.#clock,
        killer: this.#killer,
        sandboxType: "none",
        droppedEnv: undefined,
        limitMetBy: (signal) => (signal === SIGXCPU && limits?.cpuTimeMs !== undefined ? "cpuTimeMs" : null),
        wasDenied: () => false,
        onClose: () => this.#forget(restored),
        startedAtMs,
        restored: { isStdinClosed, hasExited: exit !== null },
      },
    );
    restored.attach(child);
    if (!log.isClosed) this.#remember(restored);
    // After the session has put its own cursor there.
    setImmediate(() => {
      beginning.close();
      inherited.begin(restored.childEvents);
    });
    return restored;
  }

  #logOptions(isKept: boolean): EventLogOptions {
    const { eventLogLimits, budget, snapshotBudget } = this.#options;
    const limits = isKept
      ? { ...eventLogLimits, retainedBytes: KEPT_RETAINED_BYTES, retainedChunks: KEPT_RETAINED_CHUNKS }
      : eventLogLimits;
    return { clock: this.#clock, limits, budget, snapshotBudget };
  }

  async #start(params: StartParams, spec: ChildSpec, walls: ResolvedWalls | null): Promise<LocalProcess> {
    const limits = params.limits ? enforceLimits(params.limits, this.#machine.canLimitResources) : null;
    const kept = this.#keptSpec(params);
    try {
      const process = await this.#startWithin(
        limits,
        params,
        { ...spec, limits: limits ?? undefined, kept },
        walls,
      );
      if (limits) void process.closed.then(() => limits.release());
      return process;
    } catch (error) {
      limits?.release();
      throw error;
    }
  }

  #keptSpec({ keptFor, ...params }: StartParams): ChildSpec["kept"] {
    if (keptFor === undefined) return undefined;
    const startedAtMs = this.#clock.now();
    const record = writeRecord(keptFor, startedAtMs, { ...params, lifetime: "kept" });
    return { record, startedAtMs, maxOutputBytes: params.limits?.outputBytes ?? Number.POSITIVE_INFINITY };
  }

  async #startWithin(
    limits: EnforcedLimits | null,
    params: StartParams,
    spec: ChildSpec,
    walls: ResolvedWalls | null,
  ): Promise<LocalProcess> {
    const log = new EventLog(this.#logOptions(spec.kept !== undefined));
    const process = new LocalProcess(params, spec.terminal, {
      log,
      clock: this.#clock,
      killer: this.#killer,
      sandboxType: walls?.sandboxType ?? labelOf(params),
      droppedEnv: params.secretGuard && droppedSecrets(params, this.#hostEnv),
      limitMetBy: (signal) => limits?.metBy(signal) ?? null,
      wasDenied: walls?.wasDenied ?? (() => false),
      onClose: () => this.#forget(process),
      startedAtMs: spec.kept?.startedAtMs,
    });
    const starting = this.#launch(process, spec);
    this.#starting.add(starting);
    try {
      await starting;
    } finally {
      this.#starting.delete(starting);
    }
    return process;
  }

  async #launch(launched: LocalProcess, spec: ChildSpec): Promise<void> {
    this.#openCgroups([]);
    try {
      const child = await this.#machine.spawn(spec, launched.childEvents);
      launched.attach(child);
      if (!launched.log.isClosed) this.#remember(launched);
    } catch (error) {
      launched.log.dispose();
      if (error instanceof SpawnError) throw internalError(error.message, { cause: error });
      throw error;
    }
  }

  /** Something was run that may leave orphans behind, though not as a process of this backend. */
  expectOrphans(): void {
    this.#orphans?.expect();
  }

  async list({ signal }: CallOptions = {}): Promise<ProcessListing[]> {
    signal?.throwIfAborted();
    return [...this.#open].map((process) => process.listing());
  }

  /**
   * Ends everything: TERM, `graceMs`, KILL, sweep; then orphans that belong to no process known. Resolves when all is
   * closed; can be called again. Rejects, after all that, when one of them could not be ended.
   */
  async shutdown(graceMs: number, reason: ExitReason = "terminated"): Promise<void> {
    await this.#endThose(() => true, graceMs, reason);
  }

  /** The same for all but those that outlive this program. */
  async endUnkept(graceMs: number): Promise<void> {
    await this.#endThose(({ kept }) => kept === null, graceMs, "terminated");
  }

  async #endThose(
    isMeant: (process: LocalProcess) => boolean,
    graceMs: number,
    reason: ExitReason,
  ): Promise<void> {
    const failures: unknown[] = [];
    const open = () => [...this.#open].filter(isMeant);
    const end = (process: LocalProcess) =>
      this.#end(process, graceMs, reason).catch((error: unknown) => {
        failures.push(error);
        this.#forget(process);
      });
    // A process that is being started meanwhile is ended too.
    while (open().length > 0 || this.#starting.size > 0) {
      await Promise.allSettled(this.#starting);
      await Promise.all(open().map(end));
    }
    await Promise.allSettled(this.#walls);
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
    await process.end(reason, { type: "graceful", timeoutMs: graceMs });
    await Promise.race([process.closed, sleep(this.#clock, LAST_OUTPUT_MS)]);
    child.cut();
    await withDeadline(
      process.closed,
      CLOSE_DEADLINE_MS,
      `process ${process.processId} to close`,
      this.#clock,
    );
  }

  #remember(opened: LocalProcess): void {
    if (this.#open.size === 0) process.on("exit", this.#onExit);
    this.#open.add(opened);
    this.#orphans?.expect();
  }

  #forget(closed: LocalProcess): void {
    this.#ids.delete(closed.processId);
    if (!this.#open.delete(closed)) return;
    if (this.#open.size === 0) process.off("exit", this.#onExit);
    this.#orphans?.expect();
  }

  /** Reports each once, though several trees may end it at once. */
  #tellUnclaimed(pid: number, startTime: number): void {
    if (this.#lastUnclaimed.get(pid) === startTime) return;
    this.#lastUnclaimed.delete(pid);
    this.#lastUnclaimed.set(pid, startTime);
    const [oldest] = this.#lastUnclaimed.keys();
    if (oldest !== undefined && this.#lastUnclaimed.size > UNCLAIMED_REMEMBERED)
      this.#lastUnclaimed.delete(oldest);
    this.#options.onOrphansEnded?.([{ pid, command: commandOf(pid) }]);
  }

  /** This program exits with processes alive: the parent-death signal ends the leaders, this ends their trees. */
  #killAllNow(): void {
    for (const { child } of this.#open) if (child && !child.kept) this.#killer.killNow(child);
  }

  async #resolveSandbox(start: SandboxedStart): Promise<ResolvedSandbox> {
    if (start.sandbox === undefined || start.sandbox === null) return { type: "none" };
    const resolved = await this.#options.resolveSandbox?.(start.sandbox, start);
    if (!resolved) throw invalidParams("sandbox intent cannot be enforced on this executor");
    return resolved;
  }

  get #hostEnv(): Record<string, string | undefined> {
    return this.#options.hostEnv ?? process.env;
  }

  #specOf(params: StartParams, env: Record<string, string>): ChildSpec {
    const [file, ...args] = params.argv;
    if (file === undefined) throw invalidParams("argv must not be empty");
    const refuse = (message: string) => {
      const error = spawnErrorFromRequest(message, file);
      throw internalError(message, { cause: error });
    };
    if (file === "") refuse(`missing program for ${params.tty ? "PTY" : "pipe"} spawn`);
    const argv0 = params.arg0 ?? file;
    if ([file, argv0, ...args].some(hasNul)) refuse("nul byte found in provided data");
    if (Object.entries(env).flat().some(hasNul)) refuse("data provided contains a nul byte");
    const cwd = nativePath(params.cwd);
    if (hasNul(cwd)) refuse("nul byte found in provided data");
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

/** A prepared request names its own walls; an intent that asks for none has none. */
function labelOf({ sandbox, sandboxType }: StartParams): SandboxType {
  return sandbox === undefined || sandbox === null ? (sandboxType ?? "none") : "none";
}

/** How many orphans may be ended at one time and still be reported once each. */
const UNCLAIMED_REMEMBERED = 100;
/** The last output of an ended process is usually there at once. */
const LAST_OUTPUT_MS = 100;
/** A killed process is reaped and closed well before this, or the machine is in trouble. */
const CLOSE_DEADLINE_MS = 5000;

const { SIGKILL, SIGXCPU } = constants.signals;

const hasNul = (text: string) => text.includes("\0");

function nativePath(cwd: string): string {
  if (isAbsolute(cwd)) return cwd;
  const invalid = () =>
    invalidParams(
      `cwd URI \`${cwd}\` is not valid on this exec-server host: '${cwd}' is invalid on '${process.platform}'`,
    );
  if (!/^file:/i.test(cwd)) throw invalidParams(`cwd \`${cwd}\` is neither an absolute path nor a file: URI`);
  try {
    return fileURLToPath(cwd);
  } catch {
    throw invalid();
  }
}
