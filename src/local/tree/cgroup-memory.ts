import { totalmem } from "node:os";
import { dirname, join } from "node:path";
import { mounts, ownCgroups } from "./cgroups.ts";
import { readOrEmpty } from "./proc-files.ts";

/** The memory that this process and its descendants may use. */
export interface MemoryLimit {
  bytes: number;
  /** Returns the bytes in use by all processes under the limit. Null without a cgroup limit. */
  usedBytes: (() => number) | null;
}

/** File names of a cgroup version. */
const FILES = {
  1: { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", inactive: /^total_inactive_file (\d+)/m },
  2: { limit: "memory.max", usage: "memory.current", inactive: /^inactive_file (\d+)/m },
} as const;

interface LimitedCgroup {
  path: string;
  version: 1 | 2;
  bytes: number;
}

/** Returns the lowest limit of this process's cgroup and its ancestors, or the memory of the host if that is lower. */
export function readMemoryLimit(procSelf = "/proc/self", hostBytes = totalmem()): MemoryLimit {
  const [lowest] = limitedCgroups(procSelf).sort((a, b) => a.bytes - b.bytes);
  if (!lowest || lowest.bytes >= hostBytes) return { bytes: hostBytes, usedBytes: null };
  return { bytes: lowest.bytes, usedBytes: () => usedBytes(lowest) };
}

function limitedCgroups(procSelf: string): LimitedCgroup[] {
  const own = ownCgroups(procSelf);
  return mounts(procSelf).flatMap(({ root, mountPoint, type, options }) => {
    const version = type === "cgroup2" ? 2 : 1;
    const path = own.get(version === 2 ? "" : "memory");
    const isMemory = type === "cgroup2" || (type === "cgroup" && options.includes("memory"));
    if (!isMemory || path === undefined) return [];
    // In a container, the mount may show only the cgroup of the container. Its root is then a prefix of the path.
    const isBelow = root === "/" || path.startsWith(`${root}/`);
    const inside = isBelow ? path.slice(root === "/" ? 0 : root.length) : "/";
    return ancestors(mountPoint, join(mountPoint, inside)).flatMap((directory): LimitedCgroup[] => {
      const bytes = Number.parseInt(readOrEmpty(join(directory, FILES[version].limit)), 10);
      return Number.isSafeInteger(bytes) ? [{ path: directory, version, bytes }] : [];
    });
  });
}

/** Returns a directory and its ancestors up to `top`. */
function ancestors(top: string, directory: string): string[] {
  const found = [directory];
  for (let path = directory; path !== top && path !== "/"; path = dirname(path)) found.push(dirname(path));
  return found;
}

/** The kernel frees inactive pages of files before it kills a process, so they do not count. */
function usedBytes({ path, version }: LimitedCgroup): number {
  const { usage, inactive } = FILES[version];
  const used = Number.parseInt(readOrEmpty(join(path, usage)), 10) || 0;
  return Math.max(0, used - Number(inactive.exec(readOrEmpty(join(path, "memory.stat")))?.[1] ?? 0));
}
