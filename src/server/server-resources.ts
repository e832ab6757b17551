import { ByteTurns } from "../async/byte-semaphore.ts";
import { ByteLedger } from "../async/memory-budget.ts";
import { Capped } from "./resource-cap.ts";
import { MEMORY_SHARES, type ServerConfig } from "./server-config.ts";

/** What all connections of a server share and none may use up: memory, and things of which there may be so many. */
export class SharedRoom {
  /** Everything kept in memory, by whichever part. */
  readonly ledger: ByteLedger;
  /** Messages that have not come whole yet. */
  readonly incoming: { small: ByteTurns; large: ByteTurns };
  /** Answers that can be large, from being made until they are sent. */
  readonly answers: ByteTurns;
  /** Bodies of HTTP responses that are answered in one piece. */
  readonly httpBodies: ByteTurns;
  readonly waits: Capped;
  readonly watchedPaths: Capped;
  readonly fileHandles: Capped;
  readonly httpRequests: Capped;
  readonly forwardStreams: Capped;
  readonly forwardListeners: Capped;

  constructor({ caps, memoryBudgetBytes }: ServerConfig, ledger = new ByteLedger(memoryBudgetBytes)) {
    const turns = (part: number) => new ByteTurns(ledger.maxBytes * part, ledger);
    this.ledger = ledger;
    this.incoming = {
      small: turns(MEMORY_SHARES.smallMessages),
      large: turns(MEMORY_SHARES.largeMessages),
    };
    this.answers = turns(MEMORY_SHARES.answers);
    this.httpBodies = turns(MEMORY_SHARES.httpBodies);
    this.waits = new Capped(caps.waits.all, "waits", "await the answer to one of them first");
    this.watchedPaths = new Capped(caps.watchedPaths, "watched paths", "watch fewer paths");
    this.fileHandles = new Capped(caps.fileHandles, "file handles", "close one with fs/close first");
    this.httpRequests = new Capped(
      caps.httpRequests.all,
      "HTTP requests",
      "await the end of one of them first",
    );
    this.forwardStreams = new Capped(caps.forwardStreams.all, "forwarded streams", "close one of them first");
    this.forwardListeners = new Capped(
      caps.forwardListeners,
      "forwarding listeners",
      "end one with forward/unlisten first",
    );
  }
}
