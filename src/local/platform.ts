import type { SpawnChild } from "./child.ts";
import { spawnFallbackChild } from "./fallback-child.ts";
import type { KeptMachine } from "./kept-child.ts";
import { type ProcessTable, procFsTable } from "./tree/process-table.ts";

/** What a backend works with: how programs are started, seen and reaped here. */
export interface LocalMachine {
  readonly spawn: SpawnChild;
  readonly table: ProcessTable;
  /** Null where orphans cannot be made to come to this program. */
  readonly reaper: OrphanReaper | null;
  /** Whether children can be held to resource limits and cgroups. */
  readonly canLimitResources: boolean;
  /**
   * Processes get a cgroup each from now on, where this program has one of its own. What an earlier server left there is
   * ended, except the kept processes with these marks.
   */
  readonly openCgroups?: ((options: CgroupsOptions) => void) | undefined;
  /** The keeper above this program; null where there is none. */
  readonly keeper?: KeptMachine | null | undefined;
  /** What is degraded here, each with its reason. */
  readonly degraded: readonly string[];
}

export interface CgroupsOptions {
  keptMarks: readonly number[];
  /** Called once, with the system's error, when there should be a cgroup and is none. */
  onFailure: (error: string) => void;
}

export interface OrphanReaper {
  /** Orphans of what this program starts come to it, or no longer. */
  setSubreaper(on: boolean): void;
  /** False when there was nothing to reap. */
  reap(pid: number): boolean;
}

/** A machine that has nothing but Node. */
export function plainMachine(why: string): LocalMachine {
  return {
    spawn: spawnFallbackChild,
    table: procFsTable,
    reaper: null,
    canLimitResources: false,
    degraded: [`native spawner missing: ${why}`],
  };
}
