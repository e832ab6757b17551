import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { chmod, lstat, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SandboxScope } from "../exec/exec-process.ts";

const PREFIX = "procwire-tmp-";

interface Lasting {
  /** The folder that is removed in the end; only this user can enter it. */
  outer: string;
  /** What stands at /tmp behind the walls. */
  directory: string;
  /** Walls that stand on it now. */
  users: number;
  scopeIsOver: boolean;
}

export interface HeldTmp {
  directory: string;
  /** The walls are down. Resolves when nothing is left to do for it. */
  release(): Promise<void>;
}

/**
 * Folders that stand at /tmp behind walls, so that what one command leaves there the next one finds. Each belongs to a
 * scope and a name within it, and is removed once the scope is over and the last walls on it are down. A program that was
 * killed leaves its folders behind; the next one that needs such a folder removes them.
 */
export class LastingTmps {
  readonly #parent: string;
  readonly #ofScope = new WeakMap<SandboxScope, Map<string, Lasting>>();
  readonly #removals = new Set<Promise<void>>();
  #swept = false;

  constructor(parent: string = tmpdir()) {
    this.#parent = parent;
  }

  hold(scope: SandboxScope, name: string): HeldTmp {
    const lasting = this.#of(scope, name);
    lasting.users++;
    let isHeld = true;
    return {
      directory: lasting.directory,
      release: async () => {
        if (isHeld) lasting.users--;
        isHeld = false;
        await this.#removeIfOver(lasting);
      },
    };
  }

  /** Resolves when everything that is to be removed has been. */
  async settled(): Promise<void> {
    while (this.#removals.size > 0) await Promise.all(this.#removals);
  }

  #of(scope: SandboxScope, name: string): Lasting {
    if (!this.#swept) void this.#track(removeLeftOvers(this.#parent));
    this.#swept = true;
    const known = this.#ofScope.get(scope) ?? new Map<string, Lasting>();
    this.#ofScope.set(scope, known);
    const found = known.get(name);
    if (found) return found;
    const outer = mkdtempSync(join(this.#parent, `${PREFIX}${ownName()}-`));
    const directory = join(outer, "tmp");
    mkdirSync(directory);
    chmodSync(directory, 0o1777);
    const lasting: Lasting = { outer, directory, users: 0, scopeIsOver: false };
    known.set(name, lasting);
    void scope.ended?.then(() => {
      known.delete(name);
      lasting.scopeIsOver = true;
      return this.#removeIfOver(lasting);
    });
    return lasting;
  }

  #removeIfOver({ scopeIsOver, users, outer }: Lasting): Promise<void> {
    return scopeIsOver && users === 0 ? this.#track(removeTree(outer)) : Promise.resolve();
  }

  /** A folder that cannot be removed is no reason for a command to fail: it stays for the next time. */
  async #track(removal: Promise<void>): Promise<void> {
    const settled = removal.catch(() => undefined);
    this.#removals.add(settled);
    await settled;
    this.#removals.delete(settled);
  }
}

/** Of the whole program: two hosts in it may be given the same scope. */
export const lastingTmps = new LastingTmps();

/** A number of a process is used again, in another namespace at the same time; with both of these it is this program. */
function ownName(): string {
  return `${namespaceOf("self")}-${process.pid}-${startOf("self")}`;
}

const LEFT_OVER = new RegExp(`^${PREFIX}(\\d+)-(\\d+)-(\\d+)-`);

/** Folders of programs that are no more. Those of another pid namespace are left alone: nobody here can tell. */
async function removeLeftOvers(parent: string): Promise<void> {
  const here = namespaceOf("self");
  for (const name of readdirSync(parent)) {
    const [, namespace, pid, start] = LEFT_OVER.exec(name) ?? [];
    if (pid === undefined || namespace !== here || startOf(pid) === start) continue;
    const path = join(parent, name);
    const found = await lstat(path).catch(() => null);
    if (found?.isDirectory() && found.uid === process.getuid?.()) await removeTree(path);
  }
}

/** A command may have taken the right to enter a folder away from itself. What cannot be removed stays for the next time. */
async function removeTree(path: string): Promise<void> {
  // Processes that are about to be killed may still write there.
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

/** When a process was started, in ticks since boot; null when there is none of that number. */
function startOf(pid: string): string | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name of the program comes second, in parentheses, and may contain anything.
    return text.slice(text.lastIndexOf(")") + 2).split(" ")[19] ?? null;
  } catch {
    return null;
  }
}
