import { readdirSync, readFileSync } from "node:fs";
import { type ProcStat, parseProcStat } from "../../base/proc-stat.ts";

/** Returns the text of a file of the kernel, or an empty text if it cannot be read: a process or cgroup may be gone. */
export function readOrEmpty(path: string, encoding: "utf8" | "latin1" = "utf8"): string {
  try {
    return readFileSync(path, encoding);
  } catch {
    return "";
  }
}

/** Returns the names in a directory of the kernel; none if it cannot be read. */
export function listOrEmpty(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

/** Returns the names of the directories of all processes. */
export function listPids(): string[] {
  return listOrEmpty("/proc").filter((name) => /^\d+$/.test(name));
}

/** Returns null if there is no such process. */
export function readProcStat(pid: number | string): ProcStat | null {
  return parseProcStat(readOrEmpty(`/proc/${pid}/stat`, "latin1"));
}
