import { isLive } from "../../exec/backend/process-state.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import type { SessionProcess } from "./session-process.ts";
import type { SharedProcess } from "./shared-process.ts";

type Slot = { type: "starting"; started: Promise<SessionProcess | null> } | { type: "started"; entry: SessionProcess };

/** An id whose process is being started. */
export interface ProcessReservation {
  /** Adds the started process. Returns false if the table was cleared meanwhile. */
  complete(entry: SessionProcess): boolean;
  /** Frees the id after a failed start. */
  fail(): void;
}

/** The processes of one session by process id, with a limit on the live ones. */
export class SessionProcessTable {
  readonly #maxLive: number;
  readonly #slots = new Map<string, Slot>();
  /** Upper bound of the number of live processes. Recounted only at the limit, so that a start does not scan all ended ones. */
  #liveEstimate = 0;

  constructor(maxLive: number) {
    this.#maxLive = maxLive;
  }

  /** Throws if the id is in use or the session has too many live processes. Otherwise counts one more live process. */
  acquire(processId: string): void {
    if (this.#slots.has(processId))
      throw invalidRequest(`process ${processId} already exists`, { reason: "processExists" });
    if (this.#liveEstimate >= this.#maxLive) this.#liveEstimate = this.#countLive();
    if (this.#liveEstimate >= this.#maxLive) {
      throw invalidRequest(
        `too many processes: this session may have ${this.#maxLive} live processes at once; end one first, or raise --max-processes`,
      );
    }
    this.#liveEstimate++;
  }

  /** Reserves an id for a process that is being started. */
  reserve(processId: string): ProcessReservation {
    this.acquire(processId);
    const { promise, resolve } = Promise.withResolvers<SessionProcess | null>();
    this.#slots.set(processId, { type: "starting", started: promise });
    return {
      complete: (entry) => {
        const isReserved = this.#slots.has(processId);
        if (isReserved) this.add(entry);
        resolve(entry);
        return isReserved;
      },
      fail: () => {
        this.#slots.delete(processId);
        resolve(null);
      },
    };
  }

  /** Adds a process whose id was acquired. */
  add(entry: SessionProcess): void {
    this.#slots.set(entry.processId, { type: "started", entry });
  }

  /** Adds a process of the previous server, even above the limit. */
  restore(entry: SessionProcess): void {
    this.#liveEstimate++;
    this.add(entry);
  }

  /** Returns the process with this id, or null. The promise of a process that is being started resolves to null if it fails. */
  find(processId: string): SessionProcess | null | Promise<SessionProcess | null> {
    const slot = this.#slots.get(processId);
    if (!slot) return null;
    return slot.type === "started" ? slot.entry : slot.started;
  }

  /** Returns the process with this id, or null if it has not started. */
  findStarted(processId: string): SessionProcess | null {
    const slot = this.#slots.get(processId);
    return slot?.type === "started" ? slot.entry : null;
  }

  findShared(shared: SharedProcess): SessionProcess | null {
    for (const entry of this.entries()) if (entry.shared === shared) return entry;
    return null;
  }

  /** Reports whether the table contains this process. Its id may name another process by now. */
  has(entry: SessionProcess): boolean {
    return this.findStarted(entry.processId) === entry;
  }

  *entries(): Generator<SessionProcess> {
    for (const slot of this.#slots.values()) if (slot.type === "started") yield slot.entry;
  }

  remove(processId: string): void {
    this.#slots.delete(processId);
  }

  /** Removes all processes and reservations. Returns the started processes. */
  clear(): SessionProcess[] {
    const entries = [...this.entries()];
    this.#slots.clear();
    return entries;
  }

  #countLive(): number {
    const slots = [...this.#slots.values()];
    return slots.filter((slot) => slot.type === "starting" || isLive(slot.entry.process)).length;
  }
}
