/** Resource use of a running program, read from /proc. */

import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { residentBytes } from "../servers/serve.ts";
import { until } from "./until.ts";

/** Maximum descriptors of the cgroups that a server keeps for the next starts: 8, with two descriptors each. */
const MAX_CGROUP_DESCRIPTORS = 16;

export interface ProcessUsage {
  residentBytes: number;
  descriptors: number;
}

export function readUsage(pid: number): ProcessUsage {
  return { residentBytes: residentBytes(pid), descriptors: openDescriptors(pid).length };
}

/**
 * Returns the descriptors of a process, without the `/dev/null` descriptor that libuv opens with the first stream of a
 * program and keeps in reserve, and without the cgroups that a server keeps for the next starts. The first log line may open
 * a server's first stream, and that is not a leak.
 */
export function openDescriptors(pid: number): string[] {
  const open = readdirSync(`/proc/${pid}/fd`);
  const targetOf = (fd: string) => nameOf(`/proc/${pid}/fd/${fd}`);
  const reserve = open.find((fd) => Number(fd) > 2 && targetOf(fd) === "/dev/null");
  const cgroups = open
    .filter((fd) => /^\/sys\/fs\/cgroup\/.*\/tree-/.test(targetOf(fd)))
    .slice(0, MAX_CGROUP_DESCRIPTORS);
  return open.filter((fd) => fd !== reserve && !cgroups.includes(fd));
}

/** Returns the target of a descriptor in /proc; empty if it was closed meanwhile. */
export function nameOf(link: string): string {
  try {
    return readlinkSync(link);
  } catch {
    return "";
  }
}

/** Returns the processor time of a process in seconds. */
export function processorSeconds(pid: number): number {
  const [utime = 0, stime = 0] = fieldsOf(pid).slice(11, 13).map(Number);
  return (utime + stime) / TICKS_PER_SECOND;
}

/** Returns how often the main thread of a process has waited so far. */
export function waitCount(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^voluntary_ctxt_switches:\s*(\d+)$/m.exec(status)?.[1]);
}

/** Returns the numbers of the descriptors that the epoll instances of a process watch. */
export function watchedDescriptors(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`)
    .filter((fd) => nameOf(`/proc/${pid}/fd/${fd}`) === "anon_inode:[eventpoll]")
    .flatMap((fd) => [...readFileSync(`/proc/${pid}/fdinfo/${fd}`, "utf8").matchAll(/^tfd:\s*(\d+)/gm)])
    .map(([, watched = ""]) => watched);
}

/** Returns all descendants of a process; `Z` denotes a zombie. */
export function descendantsOf(pid: number): { pid: number; state: string }[] {
  const found: { pid: number; state: string }[] = [];
  const parents = new Map<number, { pid: number; state: string }[]>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const [state = "", parent = "0"] = fieldsOf(Number(name));
      const siblings = parents.get(Number(parent)) ?? [];
      siblings.push({ pid: Number(name), state });
      parents.set(Number(parent), siblings);
    } catch {
      // The process exited meanwhile.
    }
  }
  const queue = [pid];
  for (const next of queue) {
    for (const child of parents.get(next) ?? []) {
      found.push(child);
      queue.push(child.pid);
    }
  }
  return found;
}

/** Clock ticks per second in /proc, a constant of Linux. */
const TICKS_PER_SECOND = 100;

/** Returns the fields of /proc/PID/stat from the third on; the second, the name, may contain any character. */
function fieldsOf(pid: number | string): string[] {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

/** How long a value must stay constant to count as settled. */
const SETTLED_MS = 500;
const SETTLED_WITHIN_BYTES = 1024 * 1024;

/** Returns the peak of a process's memory, sampled until it no longer changes much. */
export function settledPeak(pid: number): Promise<number> {
  return settledValue(() => residentBytes(pid), pid, SETTLED_WITHIN_BYTES);
}

/**
 * Samples a value until it stays constant, and returns the highest sample. The process and its descendants must sleep at
 * the end: on a busy machine a value can also be constant because a process waits for a processor.
 */
export async function settledValue(sample: () => number, pid: number, tolerance = 0): Promise<number> {
  let [peak, last, since] = [0, Number.NaN, 0];
  await until("the value is constant", () => {
    const now = sample();
    peak = Math.max(peak, now);
    if (!(Math.abs(now - last) <= tolerance)) [last, since] = [now, performance.now()];
    return performance.now() - since > SETTLED_MS && isAsleep(pid);
  });
  return peak;
}

/** Reports whether no thread of a process and of its descendants runs or waits for a processor. */
function isAsleep(pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/task`).every((thread) => {
      const [state] = fieldsOf(`${pid}/task/${thread}`);
      const children = readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8").trim();
      return state !== "R" && (children === "" || children.split(" ").every((child) => isAsleep(Number(child))));
    });
  } catch {
    // The process exited during the read.
    return false;
  }
}
