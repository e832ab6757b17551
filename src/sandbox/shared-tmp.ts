import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { lstat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseProcStat } from "../base/proc-stat.ts";
import type { SandboxScope } from "../exec/exec-process.ts";
import { removeTree } from "./remove-tree.ts";

const PREFIX = "procwire-tmp-";

interface SharedTmp {
  /** The directory that is removed at the end; only this user can enter it. */
  outer: string;
  /** The directory that is mounted at /tmp. */
  directory: string;
  /** Number of sandboxes that use it. */
  users: number;
  isScopeEnded: boolean;
}

export interface SharedTmpLease {
  directory: string;
  /** The directory that is removed at the end. */
  outer: string;
  /** Called after the sandbox has ended. Resolves when the cleanup is complete. */
  release(): Promise<void>;
}

/**
 * Directories that are mounted at /tmp of several sandboxes, so that a command finds the files of earlier commands. Each
 * belongs to a scope and a name. It is removed when the scope has ended and no sandbox uses it. A killed server leaves its
 * directories; the next server that needs one removes them. Directories of a supervised server belong to its supervisor:
 * the next server adopts those of persistent processes and removes the others.
 */
export class SharedTmpDirectories {
  readonly #parent = tmpdir();
  readonly #byScope = new WeakMap<SandboxScope, Map<string, SharedTmp>>();
  /** All directories of this process, by the directory that is removed at the end. */
  readonly #known = new Map<string, SharedTmp>();
  readonly #removals = new Set<Promise<void>>();
  #hasSwept = false;
  #ownerPid = process.pid;

  /** Names new directories after this process, which outlives the server: its supervisor. */
  setOwner(pid: number): void {
    this.#ownerPid = pid;
  }

  acquire(scope: SandboxScope, name: string): SharedTmpLease {
    return this.#lease(this.#getOrCreate(scope, name));
  }

  /**
   * Takes over the directory of a persistent process. It is removed after the process, unless a scope that joins ends
   * later.
   */
  adopt(outer: string, name: string): SharedTmpLease & { joinScope(scope: SandboxScope): void } {
    const shared = this.#known.get(outer) ?? {
      outer,
      directory: join(outer, "tmp"),
      users: 0,
      isScopeEnded: true,
    };
    this.#known.set(outer, shared);
    return { ...this.#lease(shared), joinScope: (scope) => this.#join(scope, name, shared) };
  }

  #lease(shared: SharedTmp): SharedTmpLease {
    shared.users++;
    let isHeld = true;
    return {
      directory: shared.directory,
      outer: shared.outer,
      release: async () => {
        if (isHeld) shared.users--;
        isHeld = false;
        await this.#removeIfUnused(shared);
      },
    };
  }

  /** Resolves when all pending removals have completed. */
  async settled(): Promise<void> {
    while (this.#removals.size > 0) await Promise.all(this.#removals);
  }

  #getOrCreate(scope: SandboxScope, name: string): SharedTmp {
    this.#sweepOnce();
    const found = this.#byScope.get(scope)?.get(name);
    if (found) return found;
    const outer = mkdtempSync(join(this.#parent, `${PREFIX}${processName(String(this.#ownerPid))}-`));
    const directory = join(outer, "tmp");
    mkdirSync(directory);
    chmodSync(directory, 0o1777);
    const shared: SharedTmp = { outer, directory, users: 0, isScopeEnded: true };
    this.#known.set(outer, shared);
    this.#join(scope, name, shared);
    return shared;
  }

  #sweepOnce(): void {
    if (this.#hasSwept) return;
    this.#hasSwept = true;
    // An earlier server of the same supervisor left all directories of the supervisor that this one does not know.
    const abandoned = this.#ownerPid === process.pid ? null : processName(String(this.#ownerPid));
    const present = new Set(this.#known.keys());
    void this.#track(removeStale(this.#parent, (path, owner) => owner === abandoned && !present.has(path)));
  }

  #join(scope: SandboxScope, name: string, shared: SharedTmp): void {
    const known = this.#byScope.get(scope) ?? new Map<string, SharedTmp>();
    this.#byScope.set(scope, known);
    if (known.has(name)) return;
    known.set(name, shared);
    shared.isScopeEnded = false;
    void scope.ended?.then(() => {
      known.delete(name);
      shared.isScopeEnded = true;
      return this.#removeIfUnused(shared);
    });
  }

  #removeIfUnused({ isScopeEnded, users, outer }: SharedTmp): Promise<void> {
    if (!isScopeEnded || users > 0) return Promise.resolve();
    this.#known.delete(outer);
    return this.#track(removeTree(outer));
  }

  /** Ignores failures: a directory that cannot be removed must not fail a command, and the next server removes it. */
  async #track(removal: Promise<void>): Promise<void> {
    const settled = removal.catch(() => undefined);
    this.#removals.add(settled);
    await settled;
    this.#removals.delete(settled);
  }
}

/** Shared by all hosts of this server, because two of them may receive the same scope. */
export const sharedTmpDirectories = new SharedTmpDirectories();

/** Identifies a process by namespace, pid and start time, because pids are reused and repeat in other namespaces. */
function processName(pid: string): string {
  return `${pidNamespace()}-${pid}-${startOf(pid)}`;
}

const STALE_NAME = new RegExp(`^${PREFIX}(\\d+)-(\\d+)-(\\d+)-`);

/**
 * Removes directories of dead servers, and directories that `isAbandoned` selects by path and name of the owner. Skips other pid
 * namespaces, whose processes cannot be checked.
 */
async function removeStale(parent: string, isAbandoned: (path: string, owner: string) => boolean): Promise<void> {
  const ownNamespace = pidNamespace();
  for (const name of readdirSync(parent)) {
    const [, namespace, pid, start] = STALE_NAME.exec(name) ?? [];
    if (pid === undefined || namespace !== ownNamespace) continue;
    const path = join(parent, name);
    if (startOf(pid) === start && !isAbandoned(path, `${namespace}-${pid}-${start}`)) continue;
    const found = await lstat(path).catch(() => null);
    if (found?.isDirectory() && found.uid === process.getuid?.()) await removeTree(path).catch(() => undefined);
  }
}

function pidNamespace(): string {
  return readlinkSync("/proc/self/ns/pid").replace(/\D/g, "");
}

/** Returns the start time in clock ticks since boot; null if there is no such process. */
function startOf(pid: string): string | null {
  try {
    const stat = parseProcStat(readFileSync(`/proc/${pid}/stat`, "latin1"));
    return stat === null ? null : String(stat.startTime);
  } catch {
    return null;
  }
}
