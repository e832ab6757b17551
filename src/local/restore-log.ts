import type { EventLog } from "../exec/event-log.ts";
import type { InheritedChild } from "./kept-child.ts";

/**
 * Tells a new log what earlier servers told, with the same numbers. What is no longer there is a gap; so is what a server
 * had read and not yet written down when it died, of which nobody knows how much it was.
 */
export function restoreLog(
  log: EventLog,
  { gone, entries, exit }: Pick<InheritedChild, "gone" | "entries" | "exit">,
): void {
  const first = entries[0]?.seq ?? gone.seq + 1;
  if (exit && exit.seq < first) {
    // How the bytes before its exit and after it were divided is not known any more.
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
