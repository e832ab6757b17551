import { readFileSync } from "node:fs";
import type { Clock } from "../../async/clock.ts";
import { type ProcStat, TICK_MS } from "../../base/proc-stat.ts";
import type { TreeUsage } from "../../exec/exec-process.ts";
import { listPids, readProcStat } from "./proc-files.ts";
import type { ProcessTable } from "./process-table.ts";

/** Shorter intervals would make the CPU share noisy: the kernel counts CPU time in steps of 10 ms. */
const MIN_SAMPLE_INTERVAL_MS = 1000;
/** Processes read per tick of the event loop; reading one takes about 10 µs. */
const READS_PER_TICK = 64;

/** Leader of a process tree. */
export interface TreeLeader {
  pid: number;
  treeTag: number | null;
}

export interface UsageSamplerOptions {
  clock: Clock;
  /** Returns the leaders of the live process trees. */
  leaders: () => readonly TreeLeader[];
  /** Returns the tree tag of a process, or null. */
  tagOf: ProcessTable["tagOf"];
}

interface Totals {
  cpuMs: number;
  memoryBytes: number;
  processes: number;
}

/**
 * Resource usage of all process trees. One pass over /proc serves every tree, and one sample serves every caller for a
 * second. The sampler reads nothing while no caller asks.
 */
export class UsageSampler {
  readonly #options: UsageSamplerOptions;
  #last: { atMs: number; usage: ReadonlyMap<number, TreeUsage> } | null = null;
  #current: Promise<ReadonlyMap<number, TreeUsage>> | null = null;

  constructor(options: UsageSamplerOptions) {
    this.#options = options;
  }

  /** Resolves to the usage of each tree by the pid of its leader. Empty on hosts without /proc. */
  sample(): Promise<ReadonlyMap<number, TreeUsage>> {
    if (this.#current) return this.#current;
    const last = this.#last;
    if (last && this.#options.clock.monotonic() - last.atMs < MIN_SAMPLE_INTERVAL_MS)
      return Promise.resolve(last.usage);
    this.#current = this.#read().finally(() => {
      this.#current = null;
    });
    return this.#current;
  }

  async #read(): Promise<ReadonlyMap<number, TreeUsage>> {
    const { clock, leaders } = this.#options;
    const atMs = clock.monotonic();
    const processes = await readProcesses();
    const totals = this.#totals(processes, leaders());
    const last = this.#last;
    const elapsedMs = last ? atMs - last.atMs : 0;
    const usage = new Map<number, TreeUsage>();
    for (const [pid, { cpuMs, ...total }] of totals) {
      const before = last?.usage.get(pid)?.cpuMs;
      // A descendant that no parent waited for takes its CPU time with it.
      const cpuPercent = before === undefined ? null : (Math.max(0, cpuMs - before) / elapsedMs) * 100;
      usage.set(pid, { cpuMs, cpuPercent, ...total });
    }
    this.#last = { atMs, usage };
    return usage;
  }

  #totals(processes: ReadonlyMap<number, ProcessUsage>, leaders: readonly TreeLeader[]): Map<number, Totals> {
    const totals = new Map<number, Totals>();
    for (const { pid } of leaders) if (processes.has(pid)) totals.set(pid, { cpuMs: 0, memoryBytes: 0, processes: 0 });
    const byTag = new Map(leaders.map(({ pid, treeTag }) => [treeTag, pid]));
    const owners = new Map<number, number | null>();
    const ownerOf = (pid: number): number | null => {
      if (totals.has(pid)) return pid;
      const known = owners.get(pid);
      if (known !== undefined) return known;
      const process = processes.get(pid);
      // Set before the recursion: pids that were reused during the pass may form a cycle.
      owners.set(pid, null);
      const owner = process ? (ownerOf(process.parentPid) ?? this.#adoptedOwner(pid, process, totals, byTag)) : null;
      owners.set(pid, owner);
      return owner;
    };
    for (const [pid, { cpuMs, memoryBytes }] of processes) {
      const owner = ownerOf(pid);
      const total = owner === null ? undefined : totals.get(owner);
      if (!total) continue;
      total.cpuMs += cpuMs;
      total.memoryBytes += memoryBytes;
      total.processes++;
    }
    return totals;
  }

  /** Returns the leader of an orphan, or null if it belongs to no tree. Only children of this server can be orphans. */
  #adoptedOwner(
    pid: number,
    { parentPid, session }: ProcessUsage,
    totals: ReadonlyMap<number, Totals>,
    byTag: ReadonlyMap<number | null, number>,
  ): number | null {
    if (totals.has(session)) return session;
    if (parentPid !== process.pid) return null;
    const tag = this.#options.tagOf(pid)?.tag;
    const leader = tag === undefined ? undefined : byTag.get(tag);
    return leader !== undefined && totals.has(leader) ? leader : null;
  }
}

interface ProcessUsage extends Pick<ProcStat, "parentPid" | "session"> {
  cpuMs: number;
  memoryBytes: number;
}

async function readProcesses(): Promise<Map<number, ProcessUsage>> {
  const found = new Map<number, ProcessUsage>();
  pageBytes ??= readPageBytes();
  let reads = 0;
  for (const name of listPids()) {
    if (++reads % READS_PER_TICK === 0) await new Promise(setImmediate);
    const stat = readProcStat(name);
    if (!stat) continue;
    // Includes the time of children that it waited for, so that the total of a tree does not fall when they exit.
    const ticks = stat.userTicks + stat.systemTicks + stat.childUserTicks + stat.childSystemTicks;
    const { parentPid, session } = stat;
    found.set(Number(name), {
      parentPid,
      session,
      cpuMs: ticks * TICK_MS,
      memoryBytes: stat.residentPages * pageBytes,
    });
  }
  return found;
}

let pageBytes: number | null = null;

/** Returns the page size of the kernel, in bytes. */
function readPageBytes(): number {
  const [, kibibytes = "4"] = /^KernelPageSize:\s+(\d+) kB$/m.exec(readFileSync("/proc/self/smaps", "latin1")) ?? [];
  return Number(kibibytes) * 1024;
}
