import type { Clock } from "../../async/clock.ts";
import type { Child } from "../child.ts";
import type { ProcessEntry, ProcessIdentity, ProcessTable, ProcessTag } from "./process-table.ts";
import { treeTags } from "./tree-tags.ts";

/** How long trees that end together share one orphan scan. A slow scan is shared for 4 times its own duration. */
const SHARED_SCAN_MS = 20;

/** The members of a child that finding and killing its tree needs. */
export type Leader = Pick<Child, "pid" | "startTime" | "treeTag" | "stdioIdentity" | "signalGroup" | "cgroup">;

export interface TreeOptions {
  table: ProcessTable;
  clock: Clock;
  /** True if this server adopts orphans: then escaped processes are its children. */
  subreaper: boolean;
  /** Called before an unclaimed orphan is killed: its tree tag belongs to no known tree, so it tried to escape. */
  onUnclaimed?: (orphan: ProcessIdentity) => void;
  /** The supervisor adopts orphans of persistent processes. */
  supervisorPid?: number | undefined;
}

/**
 * Finds the processes of a tree: the descendants of its leader, and orphans.
 *
 * Orphans are identified by their tree tag. The tree of an untagged orphan cannot be determined: the kernel has no
 * record, and a process can change everything it inherits. But no program has a reason to drop the tag. Such an orphan
 * is "unclaimed" and is killed with the first tree that it may belong to: a tree with an older leader.
 * The same applies to an orphan that changed its tag to that of another tree, which the tag check reveals. It may belong
 * to that other tree or to one with a higher tag, since a tag can only be lowered.
 */
export class TreeMembers {
  readonly #options: TreeOptions;
  /** Reports whether the tree with this tag is being swept. */
  readonly #isSwept: (tag: number) => boolean;
  /** The processes that adopt orphans if this server is not a subreaper: its ancestors. */
  readonly #subreapers: ReadonlySet<number>;
  readonly #posixSession: number | null;
  #scan: OrphanScan | null = null;
  /** Number of the last orphan scan. */
  lastScan = 0;

  constructor(options: TreeOptions, isSwept: (tag: number) => boolean) {
    this.#options = options;
    this.#isSwept = isSwept;
    if (options.subreaper) treeTags.enable();
    this.#posixSession = options.table.entry(process.pid)?.session ?? null;
    const subreapers = new Set([1]);
    for (let pid = process.ppid; pid > 1 && !subreapers.has(pid); pid = options.table.entry(pid)?.parent ?? 0)
      subreapers.add(pid);
    this.#subreapers = subreapers;
  }

  /**
   * Adds every live descendant of the leader to `seen`, using an orphan scan that is later than `afterScan`. `claimed` adds
   * no unclaimed orphans. Returns the number of the scan used.
   */
  addTo(seen: Map<number, ProcessEntry>, child: Leader, afterScan: number, orphans: "all" | "claimed"): number {
    const { table } = this.#options;
    const covered = new Set<number>();
    const add = (entry: ProcessEntry) => {
      if (entry.pid !== child.pid && !entry.zombie) seen.set(entry.pid, entry);
    };
    const descend = (pid: number) => {
      if (covered.has(pid)) return;
      for (const entry of table.descendants(pid)) {
        covered.add(entry.pid);
        add(entry);
      }
    };
    const leader = table.entry(child.pid);
    // If the leader was reaped and its pid reused, POSIX sessions and descendants of that pid mean nothing.
    const isSamePid = !leader || leader.startTime === child.startTime;
    if (isSamePid) descend(child.pid);
    const scan = this.#scanOrphans(afterScan);
    // Orphans with the tag of another tree that is being swept belong to that tree.
    const mayBelong = (tag: number | null) => tag === child.treeTag || tag === null || !this.#isSwept(tag);
    for (const orphan of [...scan.byTag].flatMap(([tag, orphans]) => (mayBelong(tag) ? orphans : []))) {
      const { entry } = orphan;
      const isOlder = child.startTime !== null && entry.startTime < child.startTime;
      if (isOlder || seen.has(entry.pid)) continue;
      const belongs =
        (isSamePid && entry.session === child.pid) ||
        (child.treeTag !== null && orphan.tag === child.treeTag) ||
        table.hasOpen(entry.pid, child.stdioIdentity);
      if (belongs) add(entry);
      else if (orphans === "all" && child.treeTag !== null && this.#isUnclaimed(orphan, child.treeTag)) {
        this.#options.onUnclaimed?.(entry);
        add(entry);
      }
    }
    // After the orphans, so that an untagged orphan is reported although the cgroup identifies its tree.
    for (const pid of child.cgroup?.pids() ?? []) {
      const entry = seen.has(pid) ? null : table.entry(pid);
      if (entry) add(entry);
    }
    for (const { pid } of [...seen.values()]) descend(pid);
    return scan.number;
  }

  /**
   * Reports whether the orphan is unclaimed. Children in the server's own POSIX session belong to other code, and process 1
   * adopts all orphans of a host.
   */
  #isUnclaimed({ entry, tag, isTampered, isSupervisorChild }: TaggedOrphan, treeTag: number): boolean {
    if (isSupervisorChild || process.pid === 1) return false;
    if (!this.#options.subreaper || entry.session === this.#posixSession) return false;
    return treeTags.isUnknown(tag) || (isTampered && tag !== null && tag < treeTag);
  }

  /**
   * Returns the processes whose parent has exited. Excludes a process that is being started: between fork and
   * exec it holds all descriptors of this server.
   */
  #scanOrphans(afterScan: number): OrphanScan {
    const { table, clock, subreaper, supervisorPid } = this.#options;
    const now = clock.monotonic();
    const last = this.#scan;
    const isCurrent = last && now < last.validUntil && now >= last.takenAt && last.number > afterScan;
    if (isCurrent) return last;
    const entries = subreaper
      ? table.orphanPids().flatMap((pid) => table.entry(pid) ?? [])
      : table.children(this.#subreapers);
    const orphans = entries
      .filter((entry) => !entry.zombie)
      .map((entry) => toTaggedOrphan(entry, table.tagOf(entry.pid), false));
    if (supervisorPid !== undefined) {
      // Excludes this server, which holds the other ends of all pipes and is untagged.
      for (const entry of table.children(new Set([supervisorPid]))) {
        const tag = entry.zombie || entry.pid === process.pid ? null : table.tagOf(entry.pid);
        if (tag) orphans.push(toTaggedOrphan(entry, tag, true));
      }
    }
    const sharedMs = Math.max(SHARED_SCAN_MS, 4 * (clock.monotonic() - now));
    const byTag = Map.groupBy(orphans, ({ tag }) => tag);
    if (subreaper) treeTags.pruneExited((tag) => byTag.has(tag));
    this.#scan = { number: ++this.lastScan, takenAt: now, validUntil: now + sharedMs, byTag };
    return this.#scan;
  }
}

interface TaggedOrphan {
  entry: ProcessEntry;
  /** Null if the orphan is untagged. */
  tag: number | null;
  /** True if the process may have replaced a higher tag with this one. */
  isTampered: boolean;
  /** True for a child of the supervisor, which kills its own unclaimed children when this server ends. */
  isSupervisorChild: boolean;
}

function toTaggedOrphan(entry: ProcessEntry, tag: ProcessTag | null, isSupervisorChild: boolean): TaggedOrphan {
  return { entry, tag: tag?.tag ?? null, isTampered: tag?.isTampered ?? false, isSupervisorChild };
}

/** The live processes whose parent has exited, at one moment. */
interface OrphanScan {
  number: number;
  takenAt: number;
  validUntil: number;
  byTag: Map<number | null, TaggedOrphan[]>;
}
