import type { SandboxScope, StartParams } from "../exec-process.ts";
import type { HostProcess } from "./host-backend.ts";

/** Owner of a persistent process, stored for the next server. */
export interface PersistentOwner {
  sessionId: string;
  ownerId: string;
  /** Handle of the process; the next server keeps it. */
  handle: string;
}

/** The part of the owner's state that changes while the process runs. */
export interface PersistentSessionState {
  /** True if the session ended or released the process: it is a background process. */
  isReleased: boolean;
  /** How many clients have had the session, including the current one. */
  attachments: number;
}

/** Writes the stored record of a persistent process. */
export interface PersistentRecordWriter {
  saveSession(session: PersistentSessionState): void;
  /** Deletes the record once no client needs the process. */
  remove(): void;
}

/** A process that an earlier server started, with its owner. */
export interface RestoredProcess extends PersistentSessionState, Pick<StartParams, "terminalQueries" | "recordInput"> {
  process: HostProcess;
  owner: PersistentOwner;
  /** Shares the resources of its sandbox with later starts of the scope. Absent without a sandbox. */
  joinSandboxScope?: ((scope: SandboxScope) => void) | undefined;
}

/**
 * Retained output of a persistent process, regardless of `retainedOutputBytes`. The state segment
 * (`native/programs/state-segment-layout.h`) holds the same output, and twice as much while the client is detached. One
 * read of the pipe has at most a quarter of these bytes. Each read is therefore one chunk in both, and the sequence
 * numbers agree.
 */
export const PERSISTENT_RETAINED_BYTES = 1024 * 1024;
export const PERSISTENT_RETAINED_CHUNKS = 4096;
