import type { SpawnChild } from "./child.ts";
import { spawnFallbackChild } from "./fallback-child.ts";
import type { KeptMachine } from "./kept-child.ts";
import { type ProcessTable, procFsTable } from "./process-table.ts";

/** What a backend works with: how programs are started, seen and reaped here. */
export interface LocalMachine {
  readonly spawn: SpawnChild;
  readonly table: ProcessTable;
  /** Null where orphans cannot be made to come to this program. */
  readonly reaper: OrphanReaper | null;
  /** Whether children can be held to resource limits and cgroups. */
  readonly canLimitResources: boolean;
  /** The keeper above this program; null where there is none. */
  readonly keeper?: KeptMachine | null | undefined;
  /** What is degraded here, each with its reason. */
  readonly degraded: readonly string[];
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
