import type { EventLog } from "../../exec/log/event-log.ts";
import type { RestoredChild } from "./persistent-child.ts";

/**
 * Fills a new event log with the events of earlier servers, under the same sequence numbers. Evicted output becomes a
 * gap. So does output that a server had read but not recorded when it died; its size is unknown.
 */
export function restoreEventLog(
  log: EventLog,
  { evicted, entries, exit }: Pick<RestoredChild, "evicted" | "entries" | "exit">,
): void {
  const first = entries[0]?.seq ?? evicted.seq + 1;
  if (exit && exit.seq < first) {
    // Whether the evicted bytes came before or after the exit is unknown.
    log.addGap(exit.seq - 1, null);
    log.exited(exit.status);
    log.addGap(first - 1, null);
  } else {
    log.addGap(first - 1, evicted.bytes);
  }
  for (const entry of entries) {
    switch (entry.type) {
      case "output":
        log.append(entry.stream, entry.chunk);
        break;
      case "gap":
        log.addGap(entry.seq, null);
        break;
      case "exited":
        if (exit) log.exited(exit.status);
        break;
      case "closed":
        log.closed();
        break;
    }
  }
}
