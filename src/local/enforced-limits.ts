import { messageOf } from "../base/error-message.ts";
import type { LimitName, ProcessLimits } from "../exec/backend/process-limits.ts";
import { invalidParams } from "../protocol/errors.ts";
import type { TreeCgroup } from "./child.ts";
import { type Cgroup, type Controller, makeCgroup } from "./tree/cgroups.ts";

/** Linux's numbers of resource limits. */
const RLIMIT_CPU = 0;
const RLIMIT_DATA = 2;
const RLIMIT_NOFILE = 7;

/** Limits that the system enforces on a child, prepared before it starts. */
export interface EnforcedLimits {
  /** Three numbers each: the resource, its soft and its hard limit. */
  readonly resources: readonly number[];
  /** Each is the cgroup.procs file of a cgroup the child enters. */
  readonly cgroups: readonly string[];
  /** Which limit a child reached that was killed by this signal, and not by us. */
  metBy(signal: number): LimitName | null;
  /** The one of version 2 among them, which holds the child with all it starts. */
  readonly tree: TreeCgroup | null;
  /** Called when no process is left in them. */
  release(): void;
}

const SIGKILL = 9;
const SIGXCPU = 24;

/** Refuses a limit that cannot be enforced here as an invalid request. */
export function enforceLimits(limits: ProcessLimits, canLimitResources: boolean): EnforcedLimits {
  const resources: number[] = [];
  const limitResource = (name: LimitName, resource: number, soft: number, hard = soft) => {
    if (!canLimitResources) throw unenforceable(name, "the native spawner is missing");
    resources.push(resource, soft, hard);
  };
  const { cpuTimeMs, processMemoryBytes, openFiles, memoryBytes, processes } = limits;
  if (cpuTimeMs !== undefined) {
    const seconds = Math.max(1, Math.ceil(cpuTimeMs / 1000));
    // At the soft limit the kernel sends SIGXCPU, which says why; a process that ignores it is killed a second later.
    limitResource("cpuTimeMs", RLIMIT_CPU, seconds, seconds + 1);
  }
  if (processMemoryBytes !== undefined) limitResource("processMemoryBytes", RLIMIT_DATA, processMemoryBytes);
  if (openFiles !== undefined) limitResource("openFiles", RLIMIT_NOFILE, openFiles);

  const cgroups = new Set<Cgroup>();
  const release = () => {
    for (const cgroup of cgroups) cgroup.remove();
  };
  const limitTree = (name: LimitName, controller: Controller, limit: number, later: Controller[] = []) => {
    try {
      if (!canLimitResources) throw new Error("the native spawner is missing");
      const [before] = cgroups;
      cgroups.add(makeCgroup(controller, limit, undefined, { later, before }));
    } catch (error) {
      release();
      throw unenforceable(name, messageOf(error));
    }
  };
  if (memoryBytes !== undefined)
    limitTree("memoryBytes", "memory", memoryBytes, processes === undefined ? [] : ["pids"]);
  if (processes !== undefined) limitTree("processes", "pids", processes);
  return {
    resources,
    cgroups: [...cgroups].map(({ procsPath }) => procsPath),
    tree: [...cgroups].find(({ tree }) => tree !== null)?.tree ?? null,
    metBy(signal) {
      if (signal === SIGXCPU && cpuTimeMs !== undefined) return "cpuTimeMs";
      return signal === SIGKILL && [...cgroups].some((cgroup) => cgroup.wasOutOfMemory())
        ? "memoryBytes"
        : null;
    },
    release,
  };
}

function unenforceable(name: LimitName, why: string): Error {
  const instead = name === "memoryBytes" ? "; `processMemoryBytes` limits each process by itself" : "";
  return invalidParams(`limit ${name} cannot be enforced on this executor: ${why}${instead}`);
}
