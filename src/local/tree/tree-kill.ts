import { constants } from "node:os";
import { type Clock, sleep } from "../../async/clock.ts";
import type { TerminateMode } from "../../exec/exec-process.ts";
import type { Child } from "../child.ts";
import { isAlive, type ProcessEntry, type ProcessIdentity, type ProcessTable } from "./process-table.ts";
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

/** How long trees that end together share one orphan scan. A slow scan is shared for 4 times its own duration. */
const SHARED_SCAN_MS = 20;

/**
 * Up to this many concurrent sweeps make their own orphan scans, which is fastest. Beyond that they share scans, so that
 * the work grows linearly with the number of processes.
 */
const FEW_SWEEPS = 4;

/** Time for inspecting trees per tick. The remaining work waits for the next tick, so that other work runs between. */
const WORK_MS_PER_TICK = 5;

/** The members of a child that killing its tree needs. */
export type Leader = Pick<Child, "pid" | "startTime" | "treeTag" | "stdioIdentity" | "signalGroup" | "cgroup">;

export interface KillTarget {
  child: Leader;
  exited(): boolean;
  /** Calls `listener` after each event of the process; returns a function that unsubscribes. */
  onChange(listener: () => void): () => void;
}

export interface TreeKillerOptions {
  table: ProcessTable;
  clock: Clock;
  /** True if this server adopts orphans: then escaped processes are its children. */
  subreaper: boolean;
  /** Called before an unclaimed orphan is killed: its tree tag belongs to no known tree, so it tried to escape. */
  onUnclaimed?: (orphan: ProcessIdentity) => void;
  /** The supervisor adopts orphans of persistent processes. */
  supervisorPid?: number | undefined;
}

/**
 * Kills process trees. It scans the tree before the first signal, because the children of a killed parent can no longer be
 * found through that parent. It signals the process group first and then the processes outside of it.
 *
 * Orphans are identified by their tree tag. The tree of an untagged orphan cannot be determined: the kernel has no
 * record, and a process can change everything it inherits. But no program has a reason to drop the tag. Such an orphan
 * is "unclaimed" and is killed with the first tree that it may belong to: a tree with an older leader.
 * The same applies to an orphan that changed its tag to that of another tree, which the tag check reveals. It may belong
 * to that other tree or to one with a higher tag, since a tag can only be lowered.
 */
export class TreeKiller {
  readonly #options: TreeKillerOptions;
  /** The processes that adopt orphans if this server is not a subreaper: its ancestors. */
  readonly #subreapers: ReadonlySet<number>;
  readonly #posixSession: number;
  #scan: OrphanScan | null = null;
  #scans = 0;
  /** Tags of the trees that are being swept. A process with one of these tags belongs to that tree alone. */
  readonly #sweeping = new Map<number, number>();
  #sweeps = 0;
  /** Time spent inspecting trees in this tick. */
  #workedMs = 0;
  #waiting: (() => void)[] = [];

  constructor(options: TreeKillerOptions) {
    this.#options = options;
    if (options.subreaper) treeTags.enable();
    this.#posixSession = options.table.entry(process.pid)?.session ?? 0;
    const subreapers = new Set([1]);
    for (let pid = process.ppid; pid > 1 && !subreapers.has(pid); pid = options.table.entry(pid)?.parent ?? 0)
      subreapers.add(pid);
    this.#subreapers = subreapers;
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
    if (seen.size === 0 && target.child.treeTag === 0 && !target.child.cgroup) return [];
    return this.#sweep(target.child, seen);
  }

  /** Kills the remaining descendants of a leader that has exited. */
  async sweep(child: Leader): Promise<number[]> {
    const seen = new Map<number, ProcessEntry>();
    if (this.#sweeps > FEW_SWEEPS) return this.#sweep(child, seen);
    this.#scanTree(child, seen, this.#scans);
    if (seen.size > 0) return this.#sweep(child, seen);
    treeTags.forget(child.treeTag);
    return [];
  }

  /** Returns true if an exited leader has live descendants; unclaimed orphans do not count. */
  hasDescendants(child: Leader): boolean {
    const seen = new Map<number, ProcessEntry>();
    this.#work(() => this.#addMembers(child, seen, 0, "claimed"));
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
    return this.#work(() => this.#addMembers(child, seen, afterScan, "all"));
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

  #addMembers(child: Leader, seen: Map<number, ProcessEntry>, afterScan: number, orphans: "all" | "claimed"): number {
    const { table } = this.#options;
    const covered = new Set<number>();
    const add = (entry: ProcessEntry) => {
      if (entry.pid !== child.pid && !entry.zombie) seen.set(entry.pid, entry);
    };
    const descend = (pid: number) => {
      if (covered.has(pid)) return;
      for (const entry of table.descendants(pid)) {
        covered.add(entry.pid);
        add(entry);
      }
    };
    const leader = table.entry(child.pid);
    // If the leader was reaped and its pid reused, POSIX sessions and descendants of that pid mean nothing.
    const isSamePid = !leader || leader.startTime === child.startTime;
    if (isSamePid) descend(child.pid);
    const scan = this.#scanOrphans(afterScan);
    // Orphans with the tag of another tree that is being swept belong to that tree.
    const mayBelong = (tag: number) => tag === child.treeTag || tag === 0 || !this.#sweeping.has(tag);
    for (const orphan of [...scan.byTag].flatMap(([tag, orphans]) => (mayBelong(tag) ? orphans : []))) {
      const { entry } = orphan;
      if (seen.has(entry.pid) || entry.startTime < child.startTime) continue;
      const belongs =
        (isSamePid && entry.session === child.pid) ||
        (child.treeTag !== 0 && orphan.tag === child.treeTag) ||
        table.hasOpen(entry.pid, child.stdioIdentity);
      if (belongs) add(entry);
      else if (orphans === "all" && child.treeTag !== 0 && this.#isUnclaimed(orphan, child.treeTag)) {
        this.#options.onUnclaimed?.(entry);
        add(entry);
      }
    }
    // After the orphans, so that an untagged orphan is reported although the cgroup identifies its tree.
    for (const pid of child.cgroup?.pids() ?? []) {
      const entry = seen.has(pid) ? null : table.entry(pid);
      if (entry) add(entry);
    }
    for (const { pid } of [...seen.values()]) descend(pid);
    return scan.number;
  }

  /**
   * Reports whether the orphan is unclaimed. Children in the server's own POSIX session belong to other code, and process 1
   * adopts all orphans of a host.
   */
  #isUnclaimed({ entry, tag, isTampered, isSupervisorChild }: TaggedOrphan, treeTag: number): boolean {
    if (isSupervisorChild || process.pid === 1) return false;
    if (!this.#options.subreaper || entry.session === this.#posixSession) return false;
    return treeTags.isUnknown(tag) || (isTampered && tag < treeTag);
  }

  /**
   * Returns the processes whose parent has exited. Excludes a process that is being started: between fork and
   * exec it holds all descriptors of this server.
   */
  #scanOrphans(afterScan: number): OrphanScan {
    const { table, clock, subreaper, supervisorPid } = this.#options;
    const now = clock.monotonic();
    const last = this.#scan;
    const isCurrent = last && now < last.validUntil && now >= last.takenAt && last.number > afterScan;
    if (isCurrent) return last;
    const entries = subreaper
      ? table.orphanPids().flatMap((pid) => table.entry(pid) ?? [])
      : table.children(this.#subreapers);
    const orphans = entries
      .filter((entry) => !entry.zombie)
      .map((entry) => toTaggedOrphan(entry, table.tagOf(entry.pid), false));
    if (supervisorPid !== undefined) {
      // Excludes this server, which holds the other ends of all pipes and is untagged.
      for (const entry of table.children(new Set([supervisorPid]))) {
        const tag = entry.zombie || entry.pid === process.pid ? 0 : table.tagOf(entry.pid);
        if (tag !== 0) orphans.push(toTaggedOrphan(entry, tag, true));
      }
    }
    const sharedMs = Math.max(SHARED_SCAN_MS, 4 * (clock.monotonic() - now));
    const byTag = Map.groupBy(orphans, ({ tag }) => tag);
    if (subreaper) treeTags.pruneExited((tag) => byTag.has(tag));
    this.#scan = { number: ++this.#scans, takenAt: now, validUntil: now + sharedMs, byTag };
    return this.#scan;
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

interface TaggedOrphan {
  entry: ProcessEntry;
  tag: number;
  /** True if the process may have replaced a higher tag with this one. */
  isTampered: boolean;
  /** True for a child of the supervisor, which kills its own unclaimed children when this server ends. */
  isSupervisorChild: boolean;
}

/** `tag` is the value of `ProcessTable.tagOf`. */
function toTaggedOrphan(entry: ProcessEntry, tag: number, isSupervisorChild: boolean): TaggedOrphan {
  return { entry, tag: Math.abs(tag), isTampered: tag < 0, isSupervisorChild };
}

/** The live processes whose parent has exited, at one moment. */
interface OrphanScan {
  number: number;
  takenAt: number;
  validUntil: number;
  byTag: Map<number, TaggedOrphan[]>;
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
