import { readFileSync } from "node:fs";
import type { ServerUnderTest } from "../server-under-test.ts";

const MIB = 1024 * 1024;

/** Resident memory of a process by mapping, in MiB: the brk heap, anonymous mappings by size, stacks, and files. */
function residentByMapping(pid: number): Record<string, number> {
  const sums: Record<string, number> = {};
  let kind = "";
  for (const line of readFileSync(`/proc/${pid}/smaps`, "utf8").split("\n")) {
    const mapping = /^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)$/.exec(line);
    if (mapping) {
      const [, from = "", to = "", , inode, name = ""] = mapping;
      const bytes = Number.parseInt(to, 16) - Number.parseInt(from, 16);
      if (inode !== "0") kind = "files";
      else if (name !== "") kind = name;
      else kind = bytes === 256 * 1024 ? "V8 pages" : bytes > 8 * MIB ? "large anonymous" : "other anonymous";
    }
    const resident = /^Rss: +(\d+) kB/.exec(line);
    if (resident) sums[kind] = (sums[kind] ?? 0) + Number(resident[1]) / 1024;
  }
  return sums;
}

/** Metrics of a server that explain its memory, in MiB. Requires `--metrics`. */
async function memoryMetrics(url: string): Promise<Record<string, number>> {
  const response = await fetch(new URL("/metrics", url.replace(/^ws/, "http")));
  const found: Record<string, number> = {};
  for (const [, name = "", value] of (await response.text()).matchAll(/^(\w+) ([\d.e+]+)$/gm)) {
    if (/memory_budget_used|heap_size_used|external_memory|queued_bytes/.test(name)) found[name] = Number(value) / MIB;
    if (/^procwire_(processes|connections|sessions)$/.test(name)) found[name] = Number(value);
  }
  return found;
}

/** Describes the memory of a server in one line, in MiB: resident by mapping, then its metrics. */
export async function describeMemory(server: ServerUnderTest): Promise<string> {
  const numbers = { ...residentByMapping(server.largestPid), ...(await memoryMetrics(server.url)) };
  const parts = Object.entries(numbers).filter(([, value]) => value >= 1);
  return parts.map(([name, value]) => `${name} ${Math.round(value)}`).join(", ");
}
