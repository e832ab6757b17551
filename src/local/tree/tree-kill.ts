import { constants } from "node:os";
import type { Clock } from "../../async/clock.ts";
import { sleep } from "../../async/clock.ts";
import type { TerminateMode } from "../../exec/exec-process.ts";
import type { Child } from "../child.ts";
import { knownTrees } from "../known-trees.ts";
import type { ProcessEntry, ProcessIdentity, ProcessTable } from "./process-table.ts";
import { isAlive } from "./process-table.ts";

const { SIGTERM, SIGCONT, SIGKILL } = constants.signals;

/** How long an answer waits to learn whether any process survived. */
const SURVIVORS_ANSWER_MS = 200;
/** How long the sweep goes on behind the answer before it gives up on what cannot be killed. */
const SWEEP_MS = 2000;
/** More than so many in a process's cgroup are killed by one write before they are looked at. */
const CROWD = 64;
/** Between two looks at the table: short at first, as the killed are gone within a few milliseconds. */
const FIRST_LOOK_MS = 2;
const LONGEST_LOOK_MS = 50;

/** A list of orphans may be this old, or four times the time it took to make: trees that end together share one. */
const SHARED_SCAN_MS = 20;

/**
 * Up to this many trees that end at once are each looked at with a list of their own, which is quickest. More share the
 * lists, so that the work grows with the number of processes and not with its square.
 */
const FEW_SWEEPS = 4;

/** How long trees are inspected in one turn of the event loop: the rest wait, so that other work gets its turn. */
const WORK_MS_PER_TURN = 5;

/** As much of a started program as ending its tree needs. */
export type Leader = Pick<Child, "pid" | "startTime" | "mark" | "ends" | "signalGroup" | "cgroup">;

export interface KillTarget {
  child: Leader;
  exited(): boolean;
  /** Calls back after each event of the process; returns how to stop. */
  onChange(listener: () => void): () => void;
}

export interface TreeKillerOptions {
  table: ProcessTable;
  clock: Clock;
  /** Orphans come to this program, so what escaped is found among its own children instead of among all processes. */
  subreaper: boolean;
  /** Called before an orphan is ended whose mark is of no known process: it was made to hide from us. */
  onUnclaimed?: (orphan: ProcessIdentity) => void;
  /** The keeper above this program: what loses its parent below a kept process comes to it. */
  keeperPid?: number | undefined;
}

/**
 * Ends whole trees. The tree is looked at before the first signal, since a killed parent's children can no longer be
 * found through it; then the group is signalled, then the processes that left the group.
 *
 * Orphans are known by their mark. Whose descendant an orphan without one was cannot be found out: the kernel keeps no
 * record, and whatever else a process inherits it can change as well. But no program has a reason to drop it, so such
 * an orphan (unclaimed) is ended with the first tree that it may belong to: one whose leader is older than it. So is one
 * that has changed its mark to another tree's, which shows in the mark's other half; it may belong to that other tree,
 * or to one with a higher mark, since marks can only be lowered.
 */
export class TreeKiller {
  readonly #options: TreeKillerOptions;
  /** Whose children orphans become without a subreaper: an ancestor of this program. */
  readonly #adopters: ReadonlySet<number>;
  readonly #ownSession: number;
  #scan: Scan | null = null;
  #scans = 0;
  /** Marks of the trees that are being swept: whatever carries one of them belongs to that tree alone. */
  readonly #sweeping = new Map<number, number>();
  #sweeps = 0;
  /** Time spent inspecting trees in this turn of the event loop. */
  #workedMs = 0;
  #waiting: (() => void)[] = [];

  constructor(options: TreeKillerOptions) {
    this.#options = options;
    if (options.subreaper) knownTrees.keep();
    this.#ownSession = options.table.entry(process.pid)?.session ?? 0;
    const adopters = new Set([1]);
    for (let pid = process.ppid; pid > 1 && !adopters.has(pid); pid = options.table.entry(pid)?.parent ?? 0)
      adopters.add(pid);
    this.#adopters = adopters;
  }

  /** Resolves with the pids of those that could not be ended. */
  async kill(target: KillTarget, mode: TerminateMode): Promise<number[]> {
    const seen = new Map<number, ProcessEntry>();
    if (mode.type !== "graceful") this.#killCrowd(target.child);
    while (this.#hasWorkedEnough) await this.#turn();
    this.#look(target.child, seen);
    if (mode.type === "graceful") {
      target.child.signalGroup(SIGTERM);
      this.#signalSession(target.child, seen, SIGTERM);
      // A stopped process would only see TERM once it is continued.
      target.child.signalGroup(SIGCONT);
      this.#signalSession(target.child, seen, SIGCONT);
      await this.#graceOver(target, seen, mode.timeoutMs);
      this.#killCrowd(target.child);
      while (this.#hasWorkedEnough) await this.#turn();
      this.#look(target.child, seen);
    }
    target.child.signalGroup(SIGKILL);
    // It has no descendants, and none can be found later without a mark: the leader's exit event reports its end.
    if (seen.size === 0 && target.child.mark === 0 && !target.child.cgroup) return [];
    return this.#sweep(target.child, seen);
  }

  /** Ends what is left of a process whose leader has ended already. */
  async sweep(child: Leader): Promise<number[]> {
    const seen = new Map<number, ProcessEntry>();
    if (this.#sweeps > FEW_SWEEPS) return this.#sweep(child, seen);
    this.#look(child, seen, this.#scans);
    if (seen.size > 0) return this.#sweep(child, seen);
    knownTrees.forget(child.mark);
    return [];
  }

  /** Whether descendants are left of a process whose leader has ended; unclaimed orphans do not count. */
  hasLeft(child: Leader): boolean {
    const seen = new Map<number, ProcessEntry>();
    this.#work(() => this.#addBelonging(child, seen, 0, "claimed"));
    return seen.size > 0;
  }

  /** The leader, while it is there, and what belongs to it. */
  tree(child: Leader): ProcessEntry[] {
    const seen = new Map<number, ProcessEntry>();
    this.#look(child, seen);
    const leader = this.#options.table.entry(child.pid);
    return [...(leader?.startTime === child.startTime ? [leader] : []), ...seen.values()];
  }

  /** Kills without waiting, for the moment this program itself ends. */
  killNow(child: Leader): void {
    const seen = new Map<number, ProcessEntry>();
    this.#look(child, seen);
    child.signalGroup(SIGKILL);
    child.cgroup?.kill();
    for (const process of seen.values()) this.#options.table.signal(process, SIGKILL);
  }

  async #sweep(child: Leader, seen: Map<number, ProcessEntry>): Promise<number[]> {
    const answer = Promise.withResolvers<number[]>();
    this.#sweeps++;
    this.#sweeping.set(child.mark, (this.#sweeping.get(child.mark) ?? 0) + 1);
    this.#killUntilGone(child, seen, answer.resolve)
      .catch((error: unknown) => answer.reject(error))
      .finally(() => {
        this.#sweeps--;
        const others = (this.#sweeping.get(child.mark) ?? 1) - 1;
        if (others > 0) this.#sweeping.set(child.mark, others);
        else this.#sweeping.delete(child.mark);
      });
    return answer.promise;
  }

  /** Resolves after a while with those that are left, and goes on sweeping in the background. */
  async #killUntilGone(
    child: Leader,
    seen: Map<number, ProcessEntry>,
    tell: (survivors: number[]) => void,
  ): Promise<void> {
    const { clock } = this.#options;
    const startedAt = clock.monotonic();
    // No process in this list of orphans was alive. A second, later list must show the same: one that forks all the
    // time may have been between two pids.
    let quietAt: number | null = null;
    for (let pause = FIRST_LOOK_MS; ; pause = Math.min(pause * 2, LONGEST_LOOK_MS)) {
      this.#killCrowd(child);
      while (this.#hasWorkedEnough) await this.#turn();
      let scan = this.#look(child, seen, quietAt ?? 0);
      let alive = this.#alive(seen);
      if (alive.length === 0 && quietAt === null && this.#canLookAtOnce(pause)) {
        quietAt = scan;
        scan = this.#look(child, seen, quietAt);
        alive = this.#alive(seen);
      }
      if (alive.length > 0) quietAt = null;
      else if (quietAt === null) quietAt = scan;
      else if (scan > quietAt) {
        knownTrees.forget(child.mark);
        return tell([]);
      }
      this.#work(() => {
        // Those killed one by one are gone by the second round; what is not may fork faster than it can be looked at.
        if (alive.length > 0 && pause > FIRST_LOOK_MS) child.cgroup?.kill();
        for (const process of alive) this.#options.table.signal(process, SIGKILL);
      });
      const elapsed = clock.monotonic() - startedAt;
      if (elapsed >= SURVIVORS_ANSWER_MS) tell(alive.map((process) => process.pid));
      if (elapsed >= SWEEP_MS) {
        child.cgroup?.kill();
        return;
      }
      await sleep(clock, pause);
    }
  }

  /** One that forks all the time grows faster than it can be looked at. */
  #killCrowd({ cgroup }: Leader): void {
    if (cgroup && cgroup.pids().length > CROWD) this.#work(() => cgroup.kill());
  }

  /** Whether a second list may be made at once: without a subreaper it is a scan of the machine, never the first thing. */
  #canLookAtOnce(pause: number): boolean {
    return this.#sweeps <= FEW_SWEEPS && (this.#options.subreaper || pause > FIRST_LOOK_MS);
  }

  /**
   * Adds every process that belongs to the child now to `seen`, from a list of orphans made after list `afterScan`.
   * Returns the number of the list.
   */
  #look(child: Leader, seen: Map<number, ProcessEntry>, afterScan = 0): number {
    return this.#work(() => this.#addBelonging(child, seen, afterScan, "all"));
  }

  /** Counts all that is done in one turn of the event loop together. */
  #work<T>(act: () => T): T {
    const { clock } = this.#options;
    const from = clock.monotonic();
    const result = act();
    if (this.#workedMs === 0) setImmediate(() => this.#nextTurn());
    this.#workedMs += Math.max(clock.monotonic() - from, Number.MIN_VALUE);
    return result;
  }

  #nextTurn(): void {
    this.#workedMs = 0;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }

  /** Checked right before each look, with no await in between: of many that were woken only some may go on. */
  get #hasWorkedEnough(): boolean {
    return this.#workedMs > WORK_MS_PER_TURN;
  }

  #turn(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #addBelonging(
    child: Leader,
    seen: Map<number, ProcessEntry>,
    afterScan: number,
    orphans: "all" | "claimed",
  ): number {
    const { table } = this.#options;
    const covered = new Set<number>();
    const add = (entry: ProcessEntry) => {
      if (entry.pid !== child.pid && !entry.zombie) seen.set(entry.pid, entry);
    };
    const descend = (pid: number) => {
      if (covered.has(pid)) return;
      covered.add(pid);
      for (const entry of table.descendants(pid)) {
        covered.add(entry.pid);
        add(entry);
      }
    };
    const leader = table.entry(child.pid);
    // Reaped, and its pid reused: sessions and descendants of that pid mean nothing any more.
    const isItsNumber = !leader || leader.startTime === child.startTime;
    if (isItsNumber) descend(child.pid);
    const scan = this.#scanOrphans(afterScan);
    for (const orphan of scan.orphansOf(child.mark, (mark) => this.#sweeping.has(mark))) {
      const { entry } = orphan;
      if (seen.has(entry.pid) || entry.startTime < child.startTime) continue;
      const belongs =
        (isItsNumber && entry.session === child.pid) ||
        (child.mark !== 0 && orphan.mark === child.mark) ||
        table.holds(entry.pid, child.ends);
      if (belongs) add(entry);
      else if (orphans === "all" && child.mark !== 0 && this.#isUnclaimed(orphan, child.mark)) {
        this.#options.onUnclaimed?.(entry);
        add(entry);
      }
    }
    // After the orphans, so that one without its mark is reported although its cgroup says whose it is.
    for (const pid of child.cgroup?.pids() ?? []) {
      const entry = seen.has(pid) ? null : table.entry(pid);
      if (entry) add(entry);
    }
    for (const { pid } of [...seen.values()]) descend(pid);
    return scan.number;
  }

  /** Children in this program's own session were started by other code here; process 1 gets all orphans of a host. */
  #isUnclaimed({ entry, mark, isTorn, isKeepers }: MarkedOrphan, treesMark: number): boolean {
    if (isKeepers || process.pid === 1) return false;
    if (!this.#options.subreaper || entry.session === this.#ownSession) return false;
    return knownTrees.isStrange(mark) || (isTorn && mark < treesMark);
  }

  /**
   * Where descendants whose parent has ended can be found. Never a program that is just being started: between fork
   * and exec it holds everything this program holds.
   */
  #scanOrphans(afterScan: number): Scan {
    const { table, clock, subreaper, keeperPid } = this.#options;
    const now = clock.monotonic();
    const last = this.#scan;
    const isGood = last && now < last.validUntil && now >= last.takenAt && last.number > afterScan;
    if (isGood) return last;
    const entries = subreaper
      ? table.orphanPids().flatMap((pid) => table.entry(pid) ?? [])
      : table.children(this.#adopters);
    const orphans = entries
      .filter((entry) => !entry.zombie)
      .map((entry) => markedOrphan(entry, table.markOf(entry.pid), false));
    if (keeperPid !== undefined) {
      // Not the server itself, which has the other ends of all pipes and carries no mark.
      for (const entry of table.children(new Set([keeperPid]))) {
        const mark = entry.zombie || entry.pid === process.pid ? 0 : table.markOf(entry.pid);
        if (mark !== 0) orphans.push(markedOrphan(entry, mark, true));
      }
    }
    const sharedMs = Math.max(SHARED_SCAN_MS, 4 * (clock.monotonic() - now));
    this.#scan = new Scan(++this.#scans, now, now + sharedMs, orphans);
    if (subreaper) knownTrees.forgetEnded((mark) => this.#scan?.has(mark) ?? false);
    return this.#scan;
  }

  #alive(seen: Map<number, ProcessEntry>): ProcessIdentity[] {
    return this.#work(() => {
      for (const [pid, entry] of seen) if (!isAlive(this.#options.table, entry)) seen.delete(pid);
      return [...seen.values()];
    });
  }

  /** Jobs of a shell with job control have groups of their own within the session. */
  #signalSession(child: Leader, seen: Map<number, ProcessEntry>, signal: number): void {
    for (const entry of seen.values())
      if (entry.session === child.pid && entry.group !== child.pid) this.#options.table.signal(entry, signal);
  }

  /** Until the leader and all processes of its session are gone, or the time is up. Those that left the session do not count. */
  async #graceOver(target: KillTarget, seen: Map<number, ProcessEntry>, graceMs: number): Promise<void> {
    const { clock, table } = this.#options;
    const session = new Map([...seen].filter(([, entry]) => entry.session === target.child.pid));
    const deadline = clock.monotonic() + graceMs;
    await leaderGone(target, clock, graceMs);
    for (
      let pause = FIRST_LOOK_MS;
      clock.monotonic() < deadline;
      pause = Math.min(pause * 2, LONGEST_LOOK_MS)
    ) {
      for (const [pid, entry] of session) if (!isAlive(table, entry)) session.delete(pid);
      if (session.size === 0) return;
      await sleep(clock, Math.min(pause, deadline - clock.monotonic()));
    }
  }
}

interface MarkedOrphan {
  entry: ProcessEntry;
  mark: number;
  /** It may have taken this mark in place of a higher one. */
  isTorn: boolean;
  /** A child of the keeper, which ends its unclaimed children itself when this server ends. */
  isKeepers: boolean;
}

/** `mark` is as the table has it. */
function markedOrphan(entry: ProcessEntry, mark: number, isKeepers: boolean): MarkedOrphan {
  return { entry, mark: Math.abs(mark), isTorn: mark < 0, isKeepers };
}

/** Living processes whose parent has ended, as they were at one moment. */
class Scan {
  readonly number: number;
  readonly takenAt: number;
  readonly validUntil: number;
  readonly #byMark: Map<number, MarkedOrphan[]>;

  constructor(number: number, takenAt: number, validUntil: number, orphans: MarkedOrphan[]) {
    this.number = number;
    this.takenAt = takenAt;
    this.validUntil = validUntil;
    this.#byMark = Map.groupBy(orphans, ({ mark }) => mark);
  }

  has(mark: number): boolean {
    return this.#byMark.has(mark);
  }

  /** Those that can belong to the tree of this mark: all but those that carry the mark of another tree. */
  *orphansOf(mark: number, isOfAnother: (mark: number) => boolean): Generator<MarkedOrphan> {
    for (const [other, orphans] of this.#byMark)
      if (other === mark || other === 0 || !isOfAnother(other)) yield* orphans;
  }
}

function leaderGone(target: KillTarget, clock: Clock, timeoutMs: number): Promise<void> {
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
