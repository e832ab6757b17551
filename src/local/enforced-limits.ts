import { constants } from "node:os";
import { errorMessage } from "../base/error-message.ts";
import { MISSING_RUNTIME_SUPPORT } from "../base/js-runtime.ts";
import type { LimitName, ProcessLimits } from "../exec/backend/process-limits.ts";
import { invalidParams } from "../protocol/errors.ts";
import type { ProcessCgroup } from "./child.ts";
import { type Cgroup, type Controller, createCgroup } from "./tree/cgroups.ts";

const { SIGKILL, SIGXCPU } = constants.signals;

/** A limit of `setrlimit`. */
export interface ResourceLimit {
  resource: "cpuSeconds" | "dataBytes" | "openFiles";
  soft: number;
  hard: number;
}

/** Kernel limits that are prepared before the child starts. */
export interface EnforcedLimits {
  readonly resources: readonly ResourceLimit[];
  /** Paths of the `cgroup.procs` files that the child writes itself into. */
  readonly cgroups: readonly string[];
  /** Returns the limit that caused this signal; null if no limit did. */
  limitExceededBy(signal: number): LimitName | null;
  /** The cgroup v2 that contains the whole process tree; null if there is none. */
  readonly tree: ProcessCgroup | null;
  /** Removes the cgroups. Called when no process is left in them. */
  release(): void;
}

const MISSING_ADDON = MISSING_RUNTIME_SUPPORT ?? "the native addon is missing";

/** Throws an invalid-params error for a limit that this host cannot enforce. */
export function enforceLimits(limits: ProcessLimits, canLimitResources: boolean): EnforcedLimits {
  const resources: ResourceLimit[] = [];
  const limitResource = (name: LimitName, resource: ResourceLimit["resource"], soft: number, hard = soft) => {
    if (!canLimitResources) throw unenforceableLimit(name, MISSING_ADDON);
    resources.push({ resource, soft, hard });
  };
  const { cpuTimeMs, processMemoryBytes, openFiles, memoryBytes, processes } = limits;
  if (cpuTimeMs !== undefined) {
    const seconds = Math.max(1, Math.ceil(cpuTimeMs / 1000));
    // The kernel sends SIGXCPU at the soft limit, which identifies the cause. A process that ignores it is killed 1 s later.
    limitResource("cpuTimeMs", "cpuSeconds", seconds, seconds + 1);
  }
  if (processMemoryBytes !== undefined) limitResource("processMemoryBytes", "dataBytes", processMemoryBytes);
  if (openFiles !== undefined) limitResource("openFiles", "openFiles", openFiles);

  const cgroups = new Set<Cgroup>();
  const release = () => {
    for (const cgroup of cgroups) cgroup.remove();
  };
  const limitTree = (name: LimitName, controller: Controller, limit: number, later: Controller[] = []) => {
    try {
      if (!canLimitResources) throw new Error(MISSING_ADDON);
      const [before] = cgroups;
      cgroups.add(createCgroup(controller, limit, undefined, { later, before }));
    } catch (error) {
      release();
      throw unenforceableLimit(name, errorMessage(error));
    }
  };
  if (memoryBytes !== undefined)
    limitTree("memoryBytes", "memory", memoryBytes, processes === undefined ? [] : ["pids"]);
  if (processes !== undefined) limitTree("processes", "pids", processes);
  return {
    resources,
    cgroups: [...cgroups].map(({ procsPath }) => procsPath),
    tree: [...cgroups].find(({ tree }) => tree !== null)?.tree ?? null,
    limitExceededBy(signal) {
      if (signal === SIGXCPU && cpuTimeMs !== undefined) return "cpuTimeMs";
      return signal === SIGKILL && [...cgroups].some((cgroup) => cgroup.wasOutOfMemory()) ? "memoryBytes" : null;
    },
    release,
  };
}

function unenforceableLimit(name: LimitName, why: string): Error {
  const instead = name === "memoryBytes" ? "; `processMemoryBytes` limits each process separately" : "";
  return invalidParams(`limit ${name} cannot be enforced on this executor: ${why}${instead}`);
}
