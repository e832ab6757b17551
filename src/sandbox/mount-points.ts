import {
  closeSync,
  constants,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname } from "node:path";
import { sleep, systemClock } from "../async/clock.ts";
import { openPath } from "./inherited-fds.ts";

/** Interval between two checks of a used mount point; a killed sandbox exits within a few milliseconds. */
const CHECK_INTERVAL_MS = 20;
/** After this many checks the mount point stays, because a process that the server cannot kill still uses it. */
const MAX_CHECKS = 250;

interface MountPointLease {
  /** Number of sandboxes that use it or are about to. */
  count: number;
  /** Contents of a file; undefined for a directory. */
  contents: string | undefined;
}

/**
 * Empty directories and placeholder files that serve as mount points. A mount cannot cover a protected path that does not
 * exist, and a sandboxed command could create it. So a mount point takes its place until no sandbox has it mounted. Earlier
 * removal would detach the mount from the sandboxes that still use it.
 */
export class MountPoints {
  readonly #leases = new Map<string, MountPointLease>();

  /** Returns true if this server created the mount point. */
  has(path: string): boolean {
    return this.#leases.has(path);
  }

  /**
   * Creates the directory, or a file with these contents, unless this server holds it already. Each call needs one `release`.
   * The path must not contain links.
   */
  acquire(path: string, contents?: string): void {
    const lease = this.#leases.get(path);
    if (lease) {
      lease.count++;
      return;
    }
    if (contents === undefined) withParentFd(path, mkdirSync);
    else withParentFd(path, (file) => writeFileSync(file, contents, { flag: "wx" }));
    this.#leases.set(path, { count: 1, contents });
  }

  /** Takes over a mount point that an earlier server created for a process that is still running. Needs one `release`. */
  adopt(path: string, contents?: string): void {
    const lease = this.#leases.get(path);
    if (lease) lease.count++;
    else this.#leases.set(path, { count: 1, contents });
  }

  /** Returns a held mount point with its contents. */
  describe(path: string): { path: string; contents?: string | undefined } {
    return { path, contents: this.#leases.get(path)?.contents };
  }

  /** Releases one lease per path and removes each path without a lease. Resolves after the removal. */
  async release(paths: readonly string[]): Promise<void> {
    let pending = paths.flatMap((path) => {
      const lease = this.#leases.get(path);
      if (lease) lease.count--;
      return lease ? [{ path, lease }] : [];
    });
    for (let checks = 0; ; checks++) {
      pending = pending.filter(({ path, lease }) => lease.count === 0 && this.#leases.get(path) === lease);
      if (pending.length === 0) return;
      const tables = foreignMountTables();
      for (const { path, lease } of pending) {
        const isMounted = isMountedIn(tables, path);
        if (isMounted && checks < MAX_CHECKS) continue;
        this.#leases.delete(path);
        if (!isMounted) removeUnlessChanged(path, lease.contents);
      }
      if (pending.some(({ path }) => this.#leases.has(path))) await sleep(systemClock, CHECK_INTERVAL_MS);
    }
  }
}

function removeUnlessChanged(path: string, contents: string | undefined): void {
  try {
    withParentFd(path, (pathViaFd) => remove(pathViaFd, contents));
  } catch {
    // It is removed already, or a process outside the sandbox has put a file into it.
  }
}

/** Removes an empty directory, or a file that still has these contents. */
function remove(path: string, contents: string | undefined): void {
  if (contents === undefined) {
    rmdirSync(path);
    return;
  }
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    if (readFileSync(fd, "utf8") === contents) unlinkSync(path);
  } finally {
    closeSync(fd);
  }
}

/** Calls `act` with a path through a descriptor of the parent directory, so that a replaced parent is not followed. */
function withParentFd(path: string, act: (path: string) => unknown): void {
  const parent = openPath(dirname(path));
  try {
    act(`/proc/self/fd/${parent}/${basename(path)}`);
  } finally {
    closeSync(parent);
  }
}

/** Returns the mount tables of all accessible processes in other mount namespaces, including sandboxes of other servers. */
function foreignMountTables(): string[] {
  const own = readlinkSync("/proc/self/ns/mnt");
  const seen = new Set([own]);
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const namespace = readlinkSync(`/proc/${name}/ns/mnt`);
      if (seen.has(namespace)) return [];
      const table = readFileSync(`/proc/${name}/mountinfo`, "utf8");
      seen.add(namespace);
      return [table];
    } catch {
      // The process has exited or belongs to another user.
      return [];
    }
  });
}

function isMountedIn(tables: readonly string[], path: string): boolean {
  const field = ` ${path.replace(/[\\ \t\n]/g, (char) => `\\${char.charCodeAt(0).toString(8).padStart(3, "0")}`)} `;
  return tables.some((table) => table.includes(field));
}

/** Shared by all hosts of this server, because two of them may use the same directory. */
export const mountPoints: MountPoints = new MountPoints();
