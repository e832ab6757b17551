import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { ChildEnds } from "../child.ts";

/** A process that can be told from a later one with the same pid. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks between the machine's start and the process's. */
  startTime: number;
}

export interface ProcessEntry extends ProcessIdentity {
  parent: number;
  group: number;
  session: number;
  /** Dead, and not yet reaped by its parent. */
  zombie: boolean;
}

/** The machine's processes, as far as ending a tree needs to know them. Every answer is a snapshot. */
export interface ProcessTable {
  /** All processes below this one, nearest first; dead ones included. */
  descendants(pid: number): ProcessEntry[];
  /** Pids of this program's children that it did not start through the spawner: orphans, where it is a subreaper. */
  orphanPids(): number[];
  /** Children of any of these. */
  children(parents: ReadonlySet<number>): ProcessEntry[];
  /** Null when it is gone. */
  entry(pid: number): ProcessEntry | null;
  /**
   * The mark it inherited from the process it descends from; 0 when it has none, or is gone. Negated when it has changed one
   * of the mark's halves: then it descends from that process, or from one with a higher mark.
   */
  markOf(pid: number): number;
  /** Does it hold one of these pipes, or this terminal? False when it may not be inspected. */
  holds(pid: number, ends: ChildEnds): boolean;
  /** Signals exactly this process; false when it is gone or out of reach. */
  signal(process: ProcessIdentity, signal: number): boolean;
}

/** Alive and still the same process. */
export function isAlive(table: ProcessTable, process: ProcessIdentity): boolean {
  const entry = table.entry(process.pid);
  return entry !== null && entry.startTime === process.startTime && !entry.zombie;
}

/** Reads /proc through Node. Empty where there is no /proc: then only a process group can be ended. */
export const procFsTable: ProcessTable = {
  descendants(pid) {
    const all = allEntries();
    const byParent = Map.groupBy(all, (entry) => entry.parent);
    const found: ProcessEntry[] = [];
    const queue = [pid];
    for (const parent of queue) {
      for (const child of byParent.get(parent) ?? []) {
        found.push(child);
        queue.push(child.pid);
      }
    }
    return found;
  },
  // Without the spawner there is no subreaper, and nothing tells an orphan from any other child.
  orphanPids: () => [],
  children: (parents) => allEntries().filter((entry) => parents.has(entry.parent)),
  entry: readEntry,
  // Only the spawner sets marks.
  markOf: () => 0,
  holds(pid, ends) {
    const wanted = new Set(ends.pipes.map((inode) => `pipe:[${inode}]`));
    if (ends.pts !== null) wanted.add(`/dev/pts/${ends.pts}`);
    if (wanted.size === 0) return false;
    try {
      return readdirSync(`/proc/${pid}/fd`).some((fd) => {
        try {
          return wanted.has(readlinkSync(`/proc/${pid}/fd/${fd}`));
        } catch {
          return false;
        }
      });
    } catch {
      return false;
    }
  },
  signal(identity, signal) {
    if (readEntry(identity.pid)?.startTime !== identity.startTime) return false;
    try {
      process.kill(identity.pid, signal);
      return true;
    } catch {
      return false;
    }
  },
};

function allEntries(): ProcessEntry[] {
  let names: string[];
  try {
    names = readdirSync("/proc");
  } catch {
    return [];
  }
  return names.flatMap((name) => (/^\d+$/.test(name) ? (readEntry(Number(name)) ?? []) : []));
}

function readEntry(pid: number): ProcessEntry | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch {
    return null;
  }
  // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
  const [state, parent, group, session, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const startTime = rest[15];
  if (startTime === undefined) return null;
  return {
    pid,
    parent: Number(parent),
    group: Number(group),
    session: Number(session),
    startTime: Number(startTime),
    zombie: state === "Z" || state === "X",
  };
}
