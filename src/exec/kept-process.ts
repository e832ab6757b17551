import type { StartParams } from "./exec-process.ts";
import type { HostProcess } from "./host-backend.ts";

/** Whose a process is that outlives its server, as the next server must know it. */
export interface KeptOwner {
  sessionId: string;
  /** The principal. */
  ownerId: string;
  /** Its public name, which stays. */
  handle: string;
}

/** What changes of that while it runs. */
export interface KeptSession {
  /** Its session is over or has let go of it: the server holds it. */
  hasLeft: boolean;
  /** How many clients have had the session, this one included. */
  attachments: number;
}

/** The side of a process that is kept. */
export interface KeptSide {
  noteSession(session: KeptSession): void;
  /** Nobody needs it any more. */
  forget(): void;
}

/** A process that an earlier server started, and whose it is. */
export interface RestoredProcess extends KeptSession, Pick<StartParams, "terminalQueries" | "recordInput"> {
  process: HostProcess;
  owner: KeptOwner;
}

/**
 * Output kept for readers of a process that outlives its server, whatever `retainedOutputBytes` is. It lies in shared memory
 * as well (`native/programs/kept-memory.h`), twice as much for a client that is away, and a read is a quarter of it at
 * most: so that each read is one chunk here and there, and the numbers are the same.
 */
export const KEPT_RETAINED_BYTES = 1024 * 1024;
export const KEPT_RETAINED_CHUNKS = 4096;
