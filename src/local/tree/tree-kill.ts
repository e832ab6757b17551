import { constants } from "node:os";
import { type Clock, sleep } from "../../async/clock.ts";
import type { TerminateMode } from "../../exec/exec-process.ts";
import { isAlive, type ProcessEntry, type ProcessIdentity } from "./process-table.ts";
import { type Leader, TreeMembers, type TreeOptions } from "./tree-members.ts";
import { treeTags } from "./tree-tags.ts";

const { SIGTERM, SIGCONT, SIGKILL } = constants.signals;

/** How long a kill waits before it reports survivors. */
const SURVIVORS_REPORT_MS = 200;
/** How long the sweep continues in the background before it gives up on processes that cannot be killed. */
const SWEEP_MS = 2000;
/** A process cgroup with more processes than this is killed by one write before its tree is scanned. */
const MAX_SCANNED_PROCESSES = 64;
/** Interval between two scans: short at first, because killed processes exit within a few milliseconds. */
const FIRST_SCAN_INTERVAL_MS = 2;
const MAX_SCAN_INTERVAL_MS = 50;

/**
 * Up to this many concurrent sweeps make their own orphan scans, which is fastest. Beyond that they share scans, so that
 * the work grows linearly with the number of processes.
 */
const FEW_SWEEPS = 4;

/** Time for inspecting trees per tick. The remaining work waits for the next tick, so that other work runs between. */
const WORK_MS_PER_TICK = 5;

export interface KillTarget {
  child: Leader;
  exited(): boolean;
  /** Calls `listener` after each event of the process; returns a function that unsubscribes. */
  onChange(listener: () => void): () => void;
}

/**
 * Kills process trees. It scans the tree before the first signal, because the children of a killed parent can no longer be
 * found through that parent. It signals the process group first and then the processes outside of it.
 */
export class TreeKiller {
  readonly #options: TreeOptions;
  readonly #members: TreeMembers;
  /** Tags of the trees that are being swept. A process with one of these tags belongs to that tree alone. */
  readonly #sweeping = new Map<number | null, number>();
  #sweeps = 0;
  /** Time spent inspecting trees in this tick. */
  #workedMs = 0;
  #waiting: (() => void)[] = [];

  constructor(options: TreeOptions) {
    this.#options = options;
    this.#members = new TreeMembers(options, (tag) => this.#sweeping.has(tag));
  }

  /** Resolves with the pids of the processes that could not be killed. */
  async kill(target: KillTarget, mode: TerminateMode): Promise<number[]> {
    const seen = new Map<number, ProcessEntry>();
    if (mode.type !== "graceful") this.#killByCgroup(target.child);
    while (this.#isTickUsedUp) await this.#nextTick();
    this.#scanTree(target.child, seen);
    if (mode.type === "graceful") {
      target.child.signalGroup(SIGTERM);
      this.#signalSession(target.child, seen, SIGTERM);
      // A stopped process handles SIGTERM only after SIGCONT.
      target.child.signalGroup(SIGCONT);
      this.#signalSession(target.child, seen, SIGCONT);
      await this.#waitForGrace(target, seen, mode.timeoutMs);
      this.#killByCgroup(target.child);
      while (this.#isTickUsedUp) await this.#nextTick();
      this.#scanTree(target.child, seen);
    }
    target.child.signalGroup(SIGKILL);
    // There are no descendants, and later ones cannot be found without a tag. The leader's exit event reports its end.
    if (seen.size === 0 && target.child.treeTag === null && !target.child.cgroup) return [];
    return this.#sweep(target.child, seen);
  }

  /** Kills the remaining descendants of a leader that has exited. */
  async sweep(child: Leader): Promise<number[]> {
    const seen = new Map<number, ProcessEntry>();
    if (this.#sweeps > FEW_SWEEPS) return this.#sweep(child, seen);
    this.#scanTree(child, seen, this.#members.lastScan);
    if (seen.size > 0) return this.#sweep(child, seen);
    treeTags.forget(child.treeTag);
    return [];
  }

  /** Returns true if an exited leader has live descendants; unclaimed orphans do not count. */
  hasDescendants(child: Leader): boolean {
    const seen = new Map<number, ProcessEntry>();
    this.#work(() => this.#members.addTo(seen, child, 0, "claimed"));
    return seen.size > 0;
  }

  /** Returns the leader, unless it was reaped, and its descendants. */
  tree(child: Leader): ProcessEntry[] {
    const seen = new Map<number, ProcessEntry>();
    this.#scanTree(child, seen);
    const leader = this.#options.table.entry(child.pid);
    return [...(leader?.startTime === child.startTime ? [leader] : []), ...seen.values()];
  }

  /** Kills without waiting, because this server is exiting. */
  killNow(child: Leader): void {
    const seen = new Map<number, ProcessEntry>();
    this.#scanTree(child, seen);
    child.signalGroup(SIGKILL);
    child.cgroup?.kill();
    for (const process of seen.values()) this.#options.table.signal(process, SIGKILL);
  }

  async #sweep(child: Leader, seen: Map<number, ProcessEntry>): Promise<number[]> {
    const result = Promise.withResolvers<number[]>();
    this.#sweeps++;
    this.#sweeping.set(child.treeTag, (this.#sweeping.get(child.treeTag) ?? 0) + 1);
    this.#killUntilEmpty(child, seen, result.resolve)
      .catch((error: unknown) => result.reject(error))
      .finally(() => {
        this.#sweeps--;
        const remaining = (this.#sweeping.get(child.treeTag) ?? 1) - 1;
        if (remaining > 0) this.#sweeping.set(child.treeTag, remaining);
        else this.#sweeping.delete(child.treeTag);
      });
    return result.promise;
  }

  /** Reports survivors after 200 ms and continues to kill in the background. */
  async #killUntilEmpty(
    child: Leader,
    seen: Map<number, ProcessEntry>,
    report: (survivors: number[]) => void,
  ): Promise<void> {
    const { clock } = this.#options;
    const startedAt = clock.monotonic();
    // Number of a scan without a live process. A second, later scan must confirm it: a process that forks all the time
    // may have been between two pids.
    let emptyScan: number | null = null;
    for (let interval = FIRST_SCAN_INTERVAL_MS; ; interval = Math.min(interval * 2, MAX_SCAN_INTERVAL_MS)) {
      this.#killByCgroup(child);
      while (this.#isTickUsedUp) await this.#nextTick();
      let scan = this.#scanTree(child, seen, emptyScan ?? 0);
      let alive = this.#alive(seen);
      if (alive.length === 0 && emptyScan === null && this.#canScanNow(interval)) {
        emptyScan = scan;
        scan = this.#scanTree(child, seen, emptyScan);
        alive = this.#alive(seen);
      }
      if (alive.length > 0) emptyScan = null;
      else if (emptyScan === null) emptyScan = scan;
      else {
        treeTags.forget(child.treeTag);
        return report([]);
      }
      this.#work(() => {
        // Processes killed individually have exited by the second scan. The others may fork faster than a scan.
        if (alive.length > 0 && interval > FIRST_SCAN_INTERVAL_MS) child.cgroup?.kill();
        for (const process of alive) this.#options.table.signal(process, SIGKILL);
      });
      const elapsed = clock.monotonic() - startedAt;
      if (elapsed >= SURVIVORS_REPORT_MS) report(alive.map((process) => process.pid));
      if (elapsed >= SWEEP_MS) {
        child.cgroup?.kill();
        return;
      }
      await sleep(clock, interval);
    }
  }

  /** Kills a large tree through its cgroup, because a tree that forks all the time grows faster than it can be scanned. */
  #killByCgroup({ cgroup }: Leader): void {
    if (cgroup && cgroup.pids().length > MAX_SCANNED_PROCESSES) this.#work(() => cgroup.kill());
  }

  /**
   * Reports whether a second scan may follow at once. Without a subreaper, a scan reads all processes of the host, so the
   * second one waits for the first interval.
   */
  #canScanNow(interval: number): boolean {
    return this.#sweeps <= FEW_SWEEPS && (this.#options.subreaper || interval > FIRST_SCAN_INTERVAL_MS);
  }

  /**
   * Adds every live descendant of the child to `seen`, using an orphan scan that is later than `afterScan`.
   * Returns the number of the scan used.
   */
  #scanTree(child: Leader, seen: Map<number, ProcessEntry>, afterScan = 0): number {
    return this.#work(() => this.#members.addTo(seen, child, afterScan, "all"));
  }

  /** Adds the duration of `act` to the time spent in this tick. */
  #work<T>(act: () => T): T {
    const { clock } = this.#options;
    const from = clock.monotonic();
    const result = act();
    if (this.#workedMs === 0) setImmediate(() => this.#startTick());
    this.#workedMs += Math.max(clock.monotonic() - from, Number.MIN_VALUE);
    return result;
  }

  #startTick(): void {
    this.#workedMs = 0;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }

  /** Checked right before each scan, without an await between: after a tick only some of the waiting kills may proceed. */
  get #isTickUsedUp(): boolean {
    return this.#workedMs > WORK_MS_PER_TICK;
  }

  #nextTick(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #alive(seen: Map<number, ProcessEntry>): ProcessIdentity[] {
    return this.#work(() => {
      for (const [pid, entry] of seen) if (!isAlive(this.#options.table, entry)) seen.delete(pid);
      return [...seen.values()];
    });
  }

  /** Signals the other process groups of the leader's POSIX session. A shell with job control puts each job into its own. */
  #signalSession(child: Leader, seen: Map<number, ProcessEntry>, signal: number): void {
    for (const entry of seen.values())
      if (entry.session === child.pid && entry.group !== child.pid) this.#options.table.signal(entry, signal);
  }

  /** Waits until the leader and its POSIX session have exited, or the grace period ends. Processes outside the session do not count. */
  async #waitForGrace(target: KillTarget, seen: Map<number, ProcessEntry>, graceMs: number): Promise<void> {
    const { clock, table } = this.#options;
    const session = new Map([...seen].filter(([, entry]) => entry.session === target.child.pid));
    const deadline = clock.monotonic() + graceMs;
    await waitForLeader(target, clock, graceMs);
    for (
      let interval = FIRST_SCAN_INTERVAL_MS;
      clock.monotonic() < deadline;
      interval = Math.min(interval * 2, MAX_SCAN_INTERVAL_MS)
    ) {
      for (const [pid, entry] of session) if (!isAlive(table, entry)) session.delete(pid);
      if (session.size === 0) return;
      await sleep(clock, Math.min(interval, deadline - clock.monotonic()));
    }
  }
}

function waitForLeader(target: KillTarget, clock: Clock, timeoutMs: number): Promise<void> {
  return new Promise((resolve) => {
    const check = () => {
      if (target.exited()) done();
    };
    const done = () => {
      stop();
      timer.cancel();
      resolve();
    };
    const timer = clock.after(timeoutMs, done);
    const stop = target.onChange(check);
    check();
  });
}
