import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { TreeCgroup } from "../child.ts";
import { procFsTable } from "./process-table.ts";

/** What is limited for a whole tree of processes. */
export type Controller = "memory" | "pids";

/** A cgroup of one process and all it starts. */
export interface Cgroup {
  /** Its cgroup.procs: a process that writes "0" to it is in the cgroup. */
  readonly procsPath: string;
  /** Whether the kernel has killed a process in it because memory ran out. */
  wasOutOfMemory(): boolean;
  /** Tries to remove it; it stays while a process is in it, and is tried again by `removeEmptyCgroups`. */
  remove(): void;
  /** Of version 2: processes are in one such cgroup at most, so that further limits are set here, and all can be killed. */
  readonly tree: (TreeCgroup & { limit(controller: Controller, limit: number): void }) | null;
}

/** What else the same processes are limited by. */
export interface CgroupCompany {
  /** Set later, in the same cgroup where that is of version 2. */
  later?: readonly Controller[];
  /** Was set before. */
  before?: Cgroup | undefined;
}

/** A folder in which cgroups with this controller can be made. */
interface Place {
  path: string;
  version: 1 | 2;
}

const NAMES = {
  memory: { 1: "memory.limit_in_bytes", 2: "memory.max" },
  pids: { 1: "pids.max", 2: "pids.max" },
} as const;

const OUT_OF_MEMORY = { 1: "memory.oom_control", 2: "memory.events" } as const;

/** Cgroups made by this program; their names say whose they are, so that the next one finds what a killed one left. */
const owner = () => `procwire-${process.pid}-${procFsTable.entry(process.pid)?.startTime ?? 0}`;
const OWNED = /^procwire-(\d+)-(\d+)-\d+$/;

let made = 0;
/** Could not be removed yet. */
const busy = new Set<string>();
const cleaned = new Set<string>();

/**
 * Throws the system's error, or one that says what is missing, when it cannot be made. `procSelf` says where this program is
 * and where cgroups are mounted.
 */
export function makeCgroup(
  controller: Controller,
  limit: number,
  procSelf = "/proc/self",
  { later = [], before }: CgroupCompany = {},
): Cgroup {
  let refusal: unknown = new Error(`there is no ${controller} cgroup that this program may add to`);
  removeEmptyCgroups();
  for (const place of placesFor(controller, procSelf, later)) {
    if (place.version === 2 && before?.tree) {
      before.tree.limit(controller, limit);
      return before;
    }
    const path = join(place.path, `${owner()}-${++made}`);
    try {
      removeLeftovers(place.path);
      mkdirSync(path);
    } catch (error) {
      refusal = error;
      continue;
    }
    try {
      writeFileSync(join(path, NAMES[controller][place.version]), String(limit));
      return {
        procsPath: join(path, "cgroup.procs"),
        wasOutOfMemory: () =>
          controller === "memory" && oomKills(join(path, OUT_OF_MEMORY[place.version])) > 0,
        remove: () => remove(path),
        tree: place.version === 2 ? treeCgroup(path) : null,
      };
    } catch (error) {
      refusal = error;
      remove(path);
    }
  }
  throw refusal;
}

/** Removes the cgroups that still had processes when they were to be removed. */
export function removeEmptyCgroups(): void {
  for (const path of busy) remove(path);
}

/** The group of a server and all it starts (`native/programs/server-group.c`), the last part of its path. */
const SERVER_GROUP = /\/procwire-server-[^/]*$/;

/** Where the group of this server is, as a directory; null for a program that has none. */
export function serverCgroup(procSelf = "/proc/self"): string | null {
  const own = lines(join(procSelf, "cgroup"))
    .find((line) => line.startsWith("0::"))
    ?.slice(3);
  if (own === undefined || !SERVER_GROUP.test(own)) return null;
  for (const { root, mountPoint, type } of mounts(procSelf))
    if (type === "cgroup2" && (root === "/" || own.startsWith(`${root}/`)))
      return join(mountPoint, root === "/" ? own : own.slice(root.length));
  return null;
}

/** A cgroup of version 2 as what holds a process with all it starts. */
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
        // Gone, or not there before Linux 5.14: the marks are left.
      }
    },
  };
}

/** Where this program is, and one above: version 2 has no groups with controllers below one that has processes. */
function placesFor(controller: Controller, procSelf: string, later: readonly Controller[] = []): Place[] {
  const own = new Map<string, string>();
  for (const line of lines(join(procSelf, "cgroup"))) {
    const [, controllers, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    // The last line is empty, and so is the name of version 2.
    if (controllers === undefined || path === undefined) continue;
    for (const name of controllers.split(",")) own.set(name, path.replace(SERVER_GROUP, "") || "/");
  }
  const all = mounts(procSelf);
  const isOfVersion1 = (name: Controller) =>
    all.some(({ type, options }) => type === "cgroup" && options.includes(name));
  const together = [controller, ...later.filter((name) => !isOfVersion1(name))];
  return all.flatMap(({ root, mountPoint, type, options }): Place[] => {
    const within = (path: string) => join(mountPoint, root === "/" ? path : path.replace(root, "") || "/");
    if (type === "cgroup" && options.includes(controller))
      return [{ path: within(own.get(controller) ?? "/"), version: 1 }];
    if (type !== "cgroup2") return [];
    const here = within(own.get("") ?? "/");
    return [here, dirname(here)]
      .filter((path) => {
        const delegated = path.startsWith(mountPoint) ? words(join(path, "cgroup.subtree_control")) : [];
        return together.every((name) => delegated.includes(name));
      })
      .map((path) => ({ path, version: 2 }));
  });
}

interface Mount {
  root: string;
  mountPoint: string;
  type: string;
  options: string[];
}

function mounts(procSelf: string): Mount[] {
  return lines(join(procSelf, "mountinfo")).map((line) => {
    const [before = "", after = ""] = line.split(" - ");
    const [, , , root = "/", mountPoint = ""] = before.split(" ");
    const [type = "", , options = ""] = after.split(" ");
    return { root, mountPoint, type, options: options.split(",") };
  });
}

/** Removes the empty cgroups of programs that were killed. Looked for once in each place. */
function removeLeftovers(place: string): void {
  if (cleaned.has(place)) return;
  cleaned.add(place);
  for (const name of readdirSync(place)) {
    const [, pid, startTime] = OWNED.exec(name) ?? [];
    if (pid === undefined || procFsTable.entry(Number(pid))?.startTime === Number(startTime)) continue;
    remove(join(place, name));
  }
}

function remove(path: string): void {
  try {
    rmdirSync(path);
    busy.delete(path);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EBUSY") busy.add(path);
    else busy.delete(path);
  }
}

function oomKills(path: string): number {
  return Number(/^oom_kill (\d+)/m.exec(lines(path).join("\n"))?.[1] ?? 0);
}

function words(path: string): string[] {
  return lines(path).flatMap((line) => line.split(" "));
}

function lines(path: string): string[] {
  try {
    return readFileSync(path, "utf8").split("\n");
  } catch {
    return [];
  }
}
