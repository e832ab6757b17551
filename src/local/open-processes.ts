import { type Clock, sleep } from "../async/clock.ts";
import { withDeadline } from "../async/deadline.ts";
import type { SandboxedStart } from "../exec/backend/resolved-sandbox.ts";
import type { LocalProcess } from "./local-process.ts";
import type { ProcessPlatform } from "./platform.ts";
import { removeEmptyCgroups } from "./tree/cgroups.ts";
import { type Orphan, OrphanTracker, readCommandLine } from "./tree/orphan-tracker.ts";
import { TreeKiller } from "./tree/tree-kill.ts";

export interface OpenProcessesOptions {
  clock: Clock;
  /** Whether this OS process adopts and reaps orphans of started processes. */
  subreaper: boolean;
  /** Called after killing orphans that belong to no known process. */
  onOrphansEnded?: ((orphans: Orphan[]) => void) | undefined;
  /** Resolves after the sandbox files shared by several processes are removed, as far as possible. */
  settleSandboxes?: (() => Promise<void>) | undefined;
  /** Called for a process that cannot be ended. Deletes it. */
  onEndFailed(process: LocalProcess): void;
}

/** Number of orphans that may be killed at the same time and still be reported once each. */
const MAX_UNCLAIMED_REPORTS = 100;
/** Wait for the last output of a terminated process, which usually arrives at once. */
const LAST_OUTPUT_MS = 100;
/** A killed process closes well before this, unless the host is overloaded. */
const CLOSE_DEADLINE_MS = 5000;

/** The processes of a backend from their start until they are closed. Ends them, their descendants and orphans. */
export class OpenProcesses {
  readonly killer: TreeKiller;
  readonly #options: OpenProcessesOptions;
  readonly #orphans: OrphanTracker | null;
  readonly #open = new Set<LocalProcess>();
  readonly #starting = new Set<Promise<void>>();
  /** Cleanups of sandboxes with their process; each resolves once nothing of the sandbox is left. */
  readonly #sandboxes = new Map<Promise<void>, LocalProcess>();
  /** Start times of the last reported unclaimed orphans, by pid. */
  readonly #lastUnclaimed = new Map<number, number>();
  readonly #onExit = () => this.#killAllNow();

  constructor({ table, reaper, supervisor }: ProcessPlatform, options: OpenProcessesOptions) {
    const { clock, subreaper } = options;
    this.#options = options;
    this.#orphans = reaper && subreaper ? new OrphanTracker({ reaper, table, clock }) : null;
    this.killer = new TreeKiller({
      table,
      clock,
      subreaper: this.#orphans !== null,
      onUnclaimed: ({ pid, startTime }) => this.#reportUnclaimed(pid, startTime),
      supervisorPid: supervisor?.pid,
    });
  }

  list(): LocalProcess[] {
    return [...this.#open];
  }

  add(opened: LocalProcess): void {
    if (this.#open.size === 0) process.on("exit", this.#onExit);
    this.#open.add(opened);
    this.#orphans?.track();
  }

  /** No-op for an unknown process. */
  delete(closed: LocalProcess): void {
    if (!this.#open.delete(closed)) return;
    if (this.#open.size === 0) process.off("exit", this.#onExit);
    this.#orphans?.track();
  }

  /** Makes `end` wait for a start, so that it misses no process. */
  async trackStart(starting: Promise<void>): Promise<void> {
    this.#starting.add(starting);
    try {
      await starting;
    } finally {
      this.#starting.delete(starting);
    }
  }

  /** Removes a sandbox after its process has closed. `end` waits for it. */
  endWithProcess(sandbox: Pick<SandboxedStart, "ended">, process: LocalProcess): void {
    const removed = process.closed.then(() => sandbox.ended());
    this.#sandboxes.set(removed, process);
    void removed.finally(() => this.#sandboxes.delete(removed));
  }

  /** Called when a command may have left orphans. */
  trackOrphans(): void {
    this.#orphans?.track();
  }

  /**
   * Terminates the matching processes with a grace period of `graceMs`, then kills the orphans of unknown processes.
   * Resolves when all of them are closed. If a process cannot be killed, it still does all of this, then rejects.
   */
  async end(shouldEnd: (process: LocalProcess) => boolean, graceMs: number): Promise<void> {
    const failures: unknown[] = [];
    const open = () => this.list().filter(shouldEnd);
    const end = (process: LocalProcess) =>
      this.#endProcess(process, graceMs).catch((error: unknown) => {
        failures.push(error);
        this.#options.onEndFailed(process);
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

  /** Stops tracking orphans. */
  close(): void {
    this.#orphans?.close();
  }

  async #endProcess(process: LocalProcess, graceMs: number): Promise<void> {
    const { clock } = this.#options;
    const { child } = process;
    if (!child) return;
    await process.terminateWithReason("terminated", { type: "graceful", timeoutMs: graceMs });
    await Promise.race([process.closed, sleep(clock, LAST_OUTPUT_MS)]);
    child.closeStreams();
    const closing = `process ${process.processId} to close`;
    await withDeadline(process.closed, CLOSE_DEADLINE_MS, closing, clock);
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
    for (const { child } of this.#open) if (child && !child.persistent) this.killer.killNow(child);
  }
}
