import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { chmod, lstat, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseProcStat } from "../base/proc-stat.ts";
import type { SandboxScope } from "../exec/exec-process.ts";

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
  /** Called after the sandbox has ended. Resolves when the cleanup is complete. */
  release(): Promise<void>;
}

/**
 * Directories that are mounted at /tmp of several sandboxes, so that a command finds the files of earlier commands. Each
 * belongs to a scope and a name. It is removed when the scope has ended and no sandbox uses it. A killed server leaves its
 * directories; the next server that needs one removes them.
 */
export class SharedTmpDirectories {
  readonly #parent: string;
  readonly #byScope = new WeakMap<SandboxScope, Map<string, SharedTmp>>();
  readonly #removals = new Set<Promise<void>>();
  #hasSwept = false;

  constructor(parent: string = tmpdir()) {
    this.#parent = parent;
  }

  acquire(scope: SandboxScope, name: string): SharedTmpLease {
    const shared = this.#getOrCreate(scope, name);
    shared.users++;
    let isHeld = true;
    return {
      directory: shared.directory,
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
    if (!this.#hasSwept) void this.#track(removeStale(this.#parent));
    this.#hasSwept = true;
    const known = this.#byScope.get(scope) ?? new Map<string, SharedTmp>();
    this.#byScope.set(scope, known);
    const found = known.get(name);
    if (found) return found;
    const outer = mkdtempSync(join(this.#parent, `${PREFIX}${serverName()}-`));
    const directory = join(outer, "tmp");
    mkdirSync(directory);
    chmodSync(directory, 0o1777);
    const shared: SharedTmp = { outer, directory, users: 0, isScopeEnded: false };
    known.set(name, shared);
    void scope.ended?.then(() => {
      known.delete(name);
      shared.isScopeEnded = true;
      return this.#removeIfUnused(shared);
    });
    return shared;
  }

  #removeIfUnused({ isScopeEnded, users, outer }: SharedTmp): Promise<void> {
    return isScopeEnded && users === 0 ? this.#track(removeTree(outer)) : Promise.resolve();
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

/** Identifies this server by namespace, pid and start time, because pids are reused and repeat in other namespaces. */
function serverName(): string {
  return `${namespaceOf("self")}-${process.pid}-${startOf("self")}`;
}

const STALE_NAME = new RegExp(`^${PREFIX}(\\d+)-(\\d+)-(\\d+)-`);

/** Removes directories of dead servers. Skips other pid namespaces, whose processes cannot be checked. */
async function removeStale(parent: string): Promise<void> {
  const ownNamespace = namespaceOf("self");
  for (const name of readdirSync(parent)) {
    const [, namespace, pid, start] = STALE_NAME.exec(name) ?? [];
    if (pid === undefined || namespace !== ownNamespace || startOf(pid) === start) continue;
    const path = join(parent, name);
    const found = await lstat(path).catch(() => null);
    if (found?.isDirectory() && found.uid === process.getuid?.()) await removeTree(path);
  }
}

/** Restores missing permissions if necessary, since a command can remove its own. Leaves the rest to the next server. */
async function removeTree(path: string): Promise<void> {
  // Processes that are being killed may still write there.
  const options = { recursive: true, force: true, maxRetries: 20, retryDelay: 50 };
  try {
    await rm(path, options);
  } catch {
    await makeEnterable(path).catch(() => undefined);
    await rm(path, options).catch(() => undefined);
  }
}

async function makeEnterable(path: string): Promise<void> {
  await chmod(path, 0o700);
  for (const entry of await readdir(path, { withFileTypes: true }))
    if (entry.isDirectory()) await makeEnterable(join(path, entry.name));
}

function namespaceOf(pid: string): string {
  return /\d+/.exec(readlinkSync(`/proc/${pid}/ns/pid`))?.[0] ?? "0";
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
