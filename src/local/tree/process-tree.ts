import { readFileSync } from "node:fs";
import type { ProcessTree, TreeEntry } from "../../exec/exec-process.ts";
import type { ProcessEntry } from "./process-table.ts";

/** Reading one process takes tens of microseconds, and blocks the event loop. */
const MAX_TOLD = 256;
/** Command lines can be megabytes long. */
const MAX_COMMAND_LINE_BYTES = 4096;
/** The unit in which the kernel reports processor time to user space, on every architecture. */
const TICK_MS = 10;

const STATES: Readonly<Record<string, TreeEntry["state"]>> = {
  ...{ R: "running", S: "sleeping", I: "sleeping", D: "waiting" },
  ...{ T: "stopped", t: "stopped", Z: "dead", X: "dead" },
};

/** What these processes are and use just now; one that has gone meanwhile is left out. */
export function treeOf(entries: readonly ProcessEntry[]): ProcessTree {
  const told = entries.slice(0, MAX_TOLD);
  return { processes: told.flatMap((entry) => describe(entry) ?? []), omitted: entries.length - told.length };
}

function describe({ pid, startTime }: ProcessEntry): TreeEntry | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const nameEnd = stat.lastIndexOf(")");
    const [state = "", parent, ...rest] = stat.slice(nameEnd + 2).split(" ");
    // The fields behind these two begin with the fifth.
    const [userTicks, systemTicks, began] = [rest[9], rest[10], rest[17]];
    if (Number(began) !== startTime) return null;
    const name = stat.slice(stat.indexOf("(") + 1, nameEnd);
    return {
      pid,
      parentPid: Number(parent),
      argv: argvOf(pid) ?? [`[${name}]`],
      state: STATES[state] ?? "sleeping",
      cpuMs: (Number(userTicks) + Number(systemTicks)) * TICK_MS,
      rssBytes: residentBytes(pid),
    };
  } catch {
    return null;
  }
}

/** Null where there is none: a dead process, or one that has overwritten it. */
function argvOf(pid: number): string[] | null {
  const line = readFileSync(`/proc/${pid}/cmdline`).subarray(0, MAX_COMMAND_LINE_BYTES).toString();
  return line === "" ? null : line.replace(/\0$/, "").split("\0");
}

function residentBytes(pid: number): number {
  const [, kibibytes = "0"] =
    /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "latin1")) ?? [];
  return Number(kibibytes) * 1024;
}
