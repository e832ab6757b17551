import { mkdirSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { hasErrorCode } from "../../base/error-code.ts";
import type { ProcessCgroup } from "../child.ts";
import { readOrEmpty } from "./proc-files.ts";
import { procFsTable } from "./process-table.ts";

/** The cgroup controllers that limit a process tree. */
export type Controller = "memory" | "pids";

/** The cgroup of one process tree. */
export interface Cgroup {
  /** Path of `cgroup.procs`: a process that writes "0" to it joins the cgroup. */
  readonly procsPath: string;
  /** Returns true if the kernel killed a process of this cgroup for lack of memory. */
  wasOutOfMemory(): boolean;
  /** Tries to remove the cgroup. It stays while it contains a process; `removeEmptyCgroups` tries again. */
  remove(): void;
  /** Set for cgroup v2, where a process is in one cgroup only: further limits are set here and all processes can be killed. */
  readonly tree: (ProcessCgroup & { limit(controller: Controller, limit: number): void }) | null;
}

/** The other limits of the same process tree. */
export interface CgroupDependencies {
  /** Controllers that are set later, in the same cgroup if it is v2. */
  later?: readonly Controller[];
  /** The cgroup of a limit that was set before. */
  before?: Cgroup | undefined;
}

/** A directory in which cgroups with this controller can be created. */
interface CgroupParent {
  path: string;
  version: 1 | 2;
}

const NAMES = {
  memory: { 1: "memory.limit_in_bytes", 2: "memory.max" },
  pids: { 1: "pids.max", 2: "pids.max" },
} as const;

const OUT_OF_MEMORY = { 1: "memory.oom_control", 2: "memory.events" } as const;

/** Prefix of this server's cgroups. It names the server, so that the next one finds the cgroups of a killed one. */
const owner = () => `procwire-${process.pid}-${procFsTable.entry(process.pid)?.startTime ?? 0}`;
const OWNED = /^procwire-(\d+)-(\d+)-\d+$/;

let createdCount = 0;
/** Paths of cgroups that could not be removed yet. */
const busy = new Set<string>();
const cleanedParents = new Set<string>();

/**
 * Creates a cgroup with one limit. Throws the system's error, or an error that names the missing controller.
 * `procSelf` is read to find this server's cgroup and the cgroup mounts.
 */
export function createCgroup(
  controller: Controller,
  limit: number,
  procSelf = "/proc/self",
  { later = [], before }: CgroupDependencies = {},
): Cgroup {
  let refusal: unknown = new Error(`no writable ${controller} cgroup found`);
  removeEmptyCgroups();
  for (const parent of candidateParents(controller, procSelf, later)) {
    if (parent.version === 2 && before?.tree) {
      before.tree.limit(controller, limit);
      return before;
    }
    const path = join(parent.path, `${owner()}-${++createdCount}`);
    try {
      removeStaleCgroups(parent.path);
      mkdirSync(path);
    } catch (error) {
      refusal = error;
      continue;
    }
    try {
      writeFileSync(join(path, NAMES[controller][parent.version]), String(limit));
      return {
        procsPath: join(path, "cgroup.procs"),
        wasOutOfMemory: () => controller === "memory" && oomKills(join(path, OUT_OF_MEMORY[parent.version])) > 0,
        remove: () => remove(path),
        tree: parent.version === 2 ? treeCgroup(path) : null,
      };
    } catch (error) {
      refusal = error;
      remove(path);
    }
  }
  throw refusal;
}

/** Tries again to remove the cgroups that still contained processes. */
export function removeEmptyCgroups(): void {
  for (const path of [...busy]) remove(path);
}

/** The last part of the path of a server cgroup (`native/programs/server-cgroup.c`). */
const SERVER_GROUP = /\/procwire-server-[^/]*$/;

/** Returns the directory of the server cgroup; null if this server has none. */
export function serverCgroupPath(procSelf = "/proc/self"): string | null {
  const own = ownCgroups(procSelf).get("");
  if (own === undefined || !SERVER_GROUP.test(own)) return null;
  for (const { root, mountPoint, type } of mounts(procSelf))
    if (type === "cgroup2" && (root === "/" || own.startsWith(`${root}/`)))
      return join(mountPoint, root === "/" ? own : own.slice(root.length));
  return null;
}

/** Controls the process tree in a cgroup v2. */
function treeCgroup(path: string): NonNullable<Cgroup["tree"]> {
  return {
    limit: (controller, limit) => writeFileSync(join(path, NAMES[controller][2]), String(limit)),
    pids: () =>
      lines(join(path, "cgroup.procs"))
        .map(Number)
        .filter((pid) => pid > 0),
    kill: () => {
      try {
        writeFileSync(join(path, "cgroup.kill"), "1");
      } catch {
        // The cgroup is removed, or Linux is older than 5.14: killing by tree tag remains.
      }
    },
  };
}

/** Returns this server's cgroup and its parent: in v2 a cgroup that contains processes cannot delegate controllers. */
function candidateParents(controller: Controller, procSelf: string, later: readonly Controller[]): CgroupParent[] {
  const own = ownCgroups(procSelf);
  const outsideServerCgroup = (name: string) => own.get(name)?.replace(SERVER_GROUP, "") || "/";
  const all = mounts(procSelf);
  const isOfVersion1 = (name: Controller) =>
    all.some(({ type, options }) => type === "cgroup" && options.includes(name));
  const together = [controller, ...later.filter((name) => !isOfVersion1(name))];
  return all.flatMap(({ root, mountPoint, type, options }): CgroupParent[] => {
    const within = (path: string) => join(mountPoint, root === "/" ? path : path.replace(root, "") || "/");
    if (type === "cgroup" && options.includes(controller))
      return [{ path: within(outsideServerCgroup(controller)), version: 1 }];
    if (type !== "cgroup2") return [];
    const here = within(outsideServerCgroup(""));
    return [here, dirname(here)]
      .filter((path) => {
        const delegated = path.startsWith(mountPoint) ? words(join(path, "cgroup.subtree_control")) : [];
        return together.every((name) => delegated.includes(name));
      })
      .map((path) => ({ path, version: 2 }));
  });
}

export interface Mount {
  root: string;
  mountPoint: string;
  type: string;
  options: string[];
}

/** Returns the path of this process's cgroup by controller name. The name is empty in cgroup v2. */
export function ownCgroups(procSelf: string): Map<string, string> {
  const paths = new Map<string, string>();
  for (const line of lines(join(procSelf, "cgroup"))) {
    const [, controllers = null, path = ""] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    for (const name of controllers?.split(",") ?? []) paths.set(name, path);
  }
  return paths;
}

export function mounts(procSelf: string): Mount[] {
  return lines(join(procSelf, "mountinfo")).map((line) => {
    const [before = "", after = ""] = line.split(" - ");
    const [, , , root = "/", mountPoint = ""] = before.split(" ");
    const [type = "", , options = ""] = after.split(" ");
    return { root, mountPoint, type, options: options.split(",") };
  });
}

/** Removes the empty cgroups of killed servers, once per directory. */
function removeStaleCgroups(parent: string): void {
  if (cleanedParents.has(parent)) return;
  cleanedParents.add(parent);
  for (const name of readdirSync(parent)) {
    const [, pid, startTime] = OWNED.exec(name) ?? [];
    if (pid === undefined || procFsTable.entry(Number(pid))?.startTime === Number(startTime)) continue;
    remove(join(parent, name));
  }
}

function remove(path: string): void {
  busy.delete(path);
  try {
    rmdirSync(path);
  } catch (error) {
    if (hasErrorCode(error, "EBUSY")) busy.add(path);
  }
}

function oomKills(path: string): number {
  return Number(/^oom_kill (\d+)/m.exec(lines(path).join("\n"))?.[1] ?? 0);
}

function words(path: string): string[] {
  return lines(path).flatMap((line) => line.split(" "));
}

function lines(path: string): string[] {
  return readOrEmpty(path).split("\n");
}
