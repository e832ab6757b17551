import { constants } from "node:os";
import type { Clock } from "../async/clock.ts";
import { sleep } from "../async/clock.ts";
import type { TerminateMode } from "../exec/exec-process.ts";
import type { Child } from "./child.ts";
import type { ProcessEntry, ProcessIdentity, ProcessTable } from "./process-table.ts";
import { isAlive } from "./process-table.ts";

const { SIGTERM, SIGCONT, SIGKILL } = constants.signals;

/** How long an answer waits to learn whether any process survived. */
const SURVIVORS_ANSWER_MS = 200;
/** How long the sweep goes on behind the answer before it gives up on what cannot be killed. */
const SWEEP_MS = 2000;
/** Between two looks at the table: short at first, as the killed are gone within a few milliseconds. */
const FIRST_LOOK_MS = 2;
const LONGEST_LOOK_MS = 50;

/** How old a list of possible orphans may be, or four times as old as it took to make: trees that end together share one. */
const SHARED_SCAN_MS = 20;

/** As much of a started program as ending its tree needs. */
export type Leader = Pick<Child, "pid" | "startTime" | "mark" | "ends" | "signalGroup">;

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
}

/**
 * Ends whole trees. The tree is looked at before the first signal, since a killed parent's children can no longer be
 * found through it; then the group is signalled, then the processes that left the group.
 */
export class TreeKiller {
  readonly #options: TreeKillerOptions;
  /** Whose children orphans become without a subreaper: an ancestor of this program. */
  readonly #adopters: ReadonlySet<number>;
  #scan: { takenAt: number; validUntil: number; afterKills: number; entries: ProcessEntry[] } | null = null;
  /** How many trees were killed so far. */
  #kills = 0;

  constructor(options: TreeKillerOptions) {
    this.#options = options;
    const adopters = new Set([1]);
    for (let pid = process.ppid; pid > 1 && !adopters.has(pid); pid = options.table.entry(pid)?.parent ?? 0)
      adopters.add(pid);
    this.#adopters = adopters;
  }

  /** Resolves with the pids of those that could not be ended. */
  async kill(target: KillTarget, mode: TerminateMode): Promise<number[]> {
    const seen = this.#look(target.child, new Map());
    if (mode.type === "graceful") {
      target.child.signalGroup(SIGTERM);
      this.#signalSession(target.child, seen, SIGTERM);
      // A stopped process would only see TERM once it is continued.
      target.child.signalGroup(SIGCONT);
      this.#signalSession(target.child, seen, SIGCONT);
      await this.#graceOver(target, seen, mode.timeoutMs);
      this.#look(target.child, seen);
    }
    target.child.signalGroup(SIGKILL);
    // It has no descendants, and none can be found later without a mark: the leader's end is told by its exit.
    if (seen.size === 0 && target.child.mark === 0) return [];
    return this.#sweep(target.child, seen);
  }

  /** Ends what is left of a process whose leader has ended already. */
  async sweep(child: Leader): Promise<number[]> {
    const seen = this.#look(child, new Map());
    return seen.size === 0 ? [] : this.#sweep(child, seen);
  }

  /** Whether descendants are left of a process whose leader has ended. */
  hasLeft(child: Leader): boolean {
    return this.#look(child, new Map()).size > 0;
  }

  /** Kills without waiting, for the moment this program itself ends. */
  killNow(child: Leader): void {
    const seen = this.#look(child, new Map());
    child.signalGroup(SIGKILL);
    for (const process of seen.values()) this.#options.table.signal(process, SIGKILL);
  }

  async #sweep(child: Leader, seen: Map<number, ProcessEntry>): Promise<number[]> {
    const { clock, subreaper } = this.#options;
    const startedAt = clock.monotonic();
    const kill = ++this.#kills;
    const answer = Promise.withResolvers<number[]>();
    const rounds = async () => {
      for (let pause = FIRST_LOOK_MS; ; pause = Math.min(pause * 2, LONGEST_LOOK_MS)) {
        let alive = this.#alive(this.#look(child, seen));
        // Looked at once more: one that forks all the time may have been between two processes. Where that takes a scan
        // of the machine, those that are killed together wait for one that is younger than all of their deaths.
        if (alive.length === 0 && (subreaper || pause > FIRST_LOOK_MS)) {
          alive = this.#alive(this.#look(child, seen, kill));
          if (alive.length === 0) return answer.resolve([]);
        }
        for (const process of alive) this.#options.table.signal(process, SIGKILL);
        const elapsed = clock.monotonic() - startedAt;
        if (elapsed >= SURVIVORS_ANSWER_MS) answer.resolve(alive.map((process) => process.pid));
        if (elapsed >= SWEEP_MS) return;
        await sleep(clock, pause);
      }
    };
    rounds().catch((error: unknown) => answer.reject(error));
    return answer.promise;
  }

  /** Adds every process that belongs to the child now to `seen`. */
  #look(child: Leader, seen: Map<number, ProcessEntry>, afterKills = 0): Map<number, ProcessEntry> {
    const { table } = this.#options;
    const add = (entry: ProcessEntry) => {
      if (entry.pid !== child.pid && !entry.zombie) seen.set(entry.pid, entry);
    };
    const leader = table.entry(child.pid);
    // Reaped, and its number given to another process: sessions and descendants of that number tell nothing any more.
    const isItsNumber = !leader || leader.startTime === child.startTime;
    if (isItsNumber) table.descendants(child.pid).forEach(add);
    for (const entry of this.#candidates(afterKills)) {
      if (seen.has(entry.pid) || entry.startTime < child.startTime) continue;
      const belongs =
        (isItsNumber && entry.session === child.pid) ||
        (child.mark !== 0 && table.markOf(entry.pid) === child.mark) ||
        table.holds(entry.pid, child.ends);
      if (belongs) add(entry);
    }
    for (const { pid } of [...seen.values()]) table.descendants(pid).forEach(add);
    return seen;
  }

  /**
   * Where descendants whose parent has ended can be found. Never a program that this one is just starting: on its way
   * from fork to exec that one holds everything this program holds.
   */
  #candidates(afterKills: number): ProcessEntry[] {
    const { table, clock, subreaper } = this.#options;
    if (subreaper) return table.orphanPids().flatMap((pid) => table.entry(pid) ?? []);
    const now = clock.monotonic();
    const scan = this.#scan;
    if (!scan || now >= scan.validUntil || now < scan.takenAt || scan.afterKills < afterKills) {
      const entries = table.children(this.#adopters);
      const tookMs = clock.monotonic() - now;
      const validUntil = now + Math.max(SHARED_SCAN_MS, 4 * tookMs);
      this.#scan = { takenAt: now, validUntil, afterKills: this.#kills, entries };
      return entries;
    }
    return scan.entries;
  }

  #alive(seen: Map<number, ProcessEntry>): ProcessIdentity[] {
    for (const [pid, entry] of seen) if (!isAlive(this.#options.table, entry)) seen.delete(pid);
    return [...seen.values()];
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
