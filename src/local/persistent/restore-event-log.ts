import type { EventLog } from "../../exec/log/event-log.ts";
import type { InheritedChild } from "../kept-child.ts";

/**
 * Fills a new log with what earlier servers emitted, with the same seqs. What is no longer retained is a gap; so is
 * what a server had read and not yet recorded when it died, whose size is unknown.
 */
export function restoreLog(
  log: EventLog,
  { gone, entries, exit }: Pick<InheritedChild, "gone" | "entries" | "exit">,
): void {
  const first = entries[0]?.seq ?? gone.seq + 1;
  if (exit && exit.seq < first) {
    // Which of these bytes came before its exit and which after is no longer known.
    log.skip(exit.seq - 1, null);
    log.exited(exit.status);
    log.skip(first - 1, null);
  } else {
    log.skip(first - 1, gone.bytes);
  }
  for (const entry of entries) {
    switch (entry.type) {
      case "output":
        log.append(entry.stream, entry.chunk);
        break;
      case "hole":
        log.skip(entry.seq, null);
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
