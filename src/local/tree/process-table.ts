import { readlinkSync } from "node:fs";
import type { StdioIdentity } from "../child.ts";
import { listOrEmpty, listPids, readProcStat } from "./proc-files.ts";

/** Distinguishes a process from a later one with the same pid. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks from boot to the start of the process. */
  startTime: number;
}

export interface ProcessEntry extends ProcessIdentity {
  parent: number;
  group: number;
  session: number;
  /** Exited and not yet reaped by its parent. */
  zombie: boolean;
}

/** The tree tag that a process carries. */
export interface ProcessTag {
  tag: number;
  /** True if the process has changed the tag: it descends from the tree of this tag or of a higher one. */
  isTampered: boolean;
}

/** The host's processes, as needed to kill a tree. Every result is a snapshot. */
export interface ProcessTable {
  /** Returns all descendants, nearest first, including zombies. */
  descendants(pid: number): ProcessEntry[];
  /** Pids of children that the addon did not start. If this server is a subreaper, these are orphans. */
  orphanPids(): number[];
  /** Returns the children of all these processes. */
  children(parents: ReadonlySet<number>): ProcessEntry[];
  /** Null if the process does not exist. */
  entry(pid: number): ProcessEntry | null;
  /** Null if the process is untagged or does not exist. */
  tagOf(pid: number): ProcessTag | null;
  /** Returns true if the process holds one of these pipes or this terminal; false if it cannot be inspected. */
  hasOpen(pid: number, ends: StdioIdentity): boolean;
  /** Signals exactly this process. Returns false if it has exited or this user may not signal it. */
  signal(process: ProcessIdentity, signal: number): boolean;
}

/** Returns true if the process is alive and its pid was not reused. */
export function isAlive(table: ProcessTable, process: ProcessIdentity): boolean {
  const entry = table.entry(process.pid);
  return entry !== null && entry.startTime === process.startTime && !entry.zombie;
}

/** Reads /proc through Node. Empty on hosts without /proc, where only a process group can be killed. */
export const procFsTable: ProcessTable = {
  descendants(pid) {
    const byParent = Map.groupBy(listProcesses(), (entry) => entry.parent);
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
  // Without the addon there is no subreaper, and orphans cannot be distinguished from other children.
  orphanPids: () => [],
  children: (parents) => listProcesses().filter((entry) => parents.has(entry.parent)),
  entry: readEntry,
  // Only the addon sets tree tags.
  tagOf: () => null,
  hasOpen(pid, ends) {
    const wanted = new Set(ends.pipes.map((inode) => `pipe:[${inode}]`));
    if (ends.pts !== null) wanted.add(`/dev/pts/${ends.pts}`);
    return wanted.size > 0 && listOpenFiles(pid).some((file) => wanted.has(file));
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

/** Returns all processes of this host. */
export function listProcesses(): ProcessEntry[] {
  return listPids().flatMap((pid) => readEntry(Number(pid)) ?? []);
}

/** Returns the files that a process has open; none if it has exited or this user may not inspect it. */
export function listOpenFiles(pid: number): string[] {
  return listOrEmpty(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      return [];
    }
  });
}

function readEntry(pid: number): ProcessEntry | null {
  const stat = readProcStat(pid);
  if (stat === null) return null;
  const { state, parentPid, processGroup, session, startTime } = stat;
  return {
    pid,
    parent: parentPid,
    group: processGroup,
    session,
    startTime,
    zombie: state === "Z" || state === "X",
  };
}
