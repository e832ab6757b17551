import type { ProcessEntry, ProcessTable } from "../local/process-table.ts";
import type { NativeEntries, NativeSpawner } from "./addon.ts";

const NUMBERS_PER_ENTRY = 6;

/** The machine's processes through the addon: a look takes microseconds where reading /proc from JavaScript takes milliseconds. */
export function nativeProcessTable(native: NativeSpawner): ProcessTable {
  return {
    descendants: (pid) => decode(native.descendants(pid)),
    orphanPids: () => native.orphanPids(),
    children: (parents) =>
      [...parents].flatMap((parent) => native.childPids(parent).flatMap((pid) => decode(native.entry(pid)))),
    entry: (pid) => decode(native.entry(pid))[0] ?? null,
    holds: (pid, ends) => native.holds(pid, ends.pts ?? -1, ...ends.pipes),
    signal: (identity, signal) => native.signal(identity.pid, identity.startTime, signal) === 0,
  };
}

function decode(entries: NativeEntries): ProcessEntry[] {
  const found: ProcessEntry[] = [];
  for (let at = 0; at < entries.length; at += NUMBERS_PER_ENTRY) {
    const [pid = 0, parent = 0, group = 0, session = 0, startTime = 0, zombie = 0] = entries.subarray(
      at,
      at + NUMBERS_PER_ENTRY,
    );
    found.push({ pid, parent, group, session, startTime, zombie: zombie === 1 });
  }
  return found;
}
