import { readFileSync } from "node:fs";
import { TICK_MS } from "../../base/proc-stat.ts";
import type { ProcessTree, TreeEntry } from "../../exec/exec-process.ts";
import { readProcStat } from "./proc-files.ts";
import type { ProcessEntry } from "./process-table.ts";

/** Reading one process takes tens of microseconds and blocks the event loop. */
const MAX_LISTED = 256;
/** Command lines can be megabytes long. */
const MAX_COMMAND_LINE_BYTES = 4096;

const STATES: Readonly<Record<string, TreeEntry["state"]>> = {
  ...{ R: "running", S: "sleeping", I: "sleeping", D: "waiting" },
  ...{ T: "stopped", t: "stopped", Z: "dead", X: "dead" },
};

/** Describes these processes and their current resource usage; omits processes that have exited. */
export function describeTree(entries: readonly ProcessEntry[]): ProcessTree {
  const listed = entries.slice(0, MAX_LISTED);
  return {
    processes: listed.flatMap((entry) => describe(entry) ?? []),
    omitted: entries.length - listed.length,
  };
}

function describe({ pid, startTime }: ProcessEntry): TreeEntry | null {
  try {
    const stat = readProcStat(pid);
    if (stat?.startTime !== startTime) return null;
    return {
      pid,
      parentPid: stat.parentPid,
      argv: argvOf(pid) ?? [`[${stat.comm}]`],
      state: STATES[stat.state] ?? "sleeping",
      cpuMs: (stat.userTicks + stat.systemTicks) * TICK_MS,
      rssBytes: residentBytes(pid),
    };
  } catch {
    return null;
  }
}

/** Null if there is no command line: the process has exited or has overwritten it. */
function argvOf(pid: number): string[] | null {
  const line = readFileSync(`/proc/${pid}/cmdline`).subarray(0, MAX_COMMAND_LINE_BYTES).toString();
  return line === "" ? null : line.replace(/\0$/, "").split("\0");
}

function residentBytes(pid: number): number {
  const [, kibibytes = "0"] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "latin1")) ?? [];
  return Number(kibibytes) * 1024;
}
