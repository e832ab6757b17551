/** The cgroup (v2) that contains a server, and the child cgroups of its processes. */

import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { skipUnless } from "./skip-unless.ts";

/** Returns the path of the cgroup (v2) of a process. */
export function groupOf(pid: number | "self"): string {
  const path = /^0::(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, "utf8"))?.[1] ?? "";
  const mounts = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  const [, , , root = "/", mountPoint = "/nowhere"] =
    mounts.find((line) => line.includes(" - cgroup2 "))?.split(" ") ?? [];
  return join(mountPoint, path.slice(root === "/" ? 0 : root.length));
}

/** Returns the names of the child cgroups. */
export const groupsIn = (path: string): string[] =>
  readdirSync(path, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);

/**
 * Why tests of a server's cgroup are skipped, or false. Root can create a cgroup if the kernel supports `cgroup.kill`;
 * an ordinary user also needs a delegated cgroup.
 */
export const NO_SERVER_CGROUP: string | false = skipUnless(
  canMakeGroups(),
  "no cgroup (version 2, with cgroup.kill) can be made here",
);

function canMakeGroups(): boolean {
  const path = join(groupOf("self"), `procwire-test-${process.pid}`);
  try {
    mkdirSync(path);
    const can = existsSync(join(path, "cgroup.kill"));
    rmdirSync(path);
    return can;
  } catch {
    return false;
  }
}

/** Prevents the creation of cgroups below the cgroup of this process. */
export function forbidGroupsBelow(pid: number): void {
  if (!NO_SERVER_CGROUP) writeFileSync(join(groupOf(pid), "cgroup.max.descendants"), "0");
}
