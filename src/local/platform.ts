import { MISSING_ADDON } from "../protocol/degraded-features.ts";
import type { SpawnChild } from "./child.ts";
import { spawnNodeChild } from "./fallback-child.ts";
import type { SupervisorChannel } from "./persistent/persistent-child.ts";
import { type ProcessTable, procFsTable } from "./tree/process-table.ts";

/** The host's means to start, inspect and reap processes. */
export interface ProcessPlatform {
  readonly spawn: SpawnChild;
  readonly table: ProcessTable;
  /** Null if this server cannot become a subreaper. */
  readonly reaper: SubreaperControl | null;
  /** True if resource limits and cgroups can be applied to children. */
  readonly canLimitResources: boolean;
  /**
   * Gives each process its own cgroup from now on, if the server has a cgroup. Kills the processes that an earlier server
   * left there, except the persistent processes with these tree tags.
   */
  readonly openCgroups?: ((options: CgroupsOptions) => void) | undefined;
  /** The supervisor of this server; null if there is none. */
  readonly supervisor?: SupervisorChannel | null | undefined;
  /** Unavailable features, each with its reason. */
  readonly degraded: readonly string[];
}

export interface CgroupsOptions {
  persistentTags: readonly number[];
  /** Called once with the system's error if a process cgroup cannot be created. */
  onFailure: (error: string) => void;
}

export interface SubreaperControl {
  /** Makes this server the subreaper of its descendants, or ends that. */
  setSubreaper(on: boolean): void;
  /** Returns false if there was nothing to reap. */
  reap(pid: number): boolean;
}

/** The platform without the native addon. */
export function nodePlatform(why: string): ProcessPlatform {
  return {
    spawn: spawnNodeChild,
    table: procFsTable,
    reaper: null,
    canLimitResources: false,
    degraded: [`${MISSING_ADDON}: ${why}`],
  };
}
