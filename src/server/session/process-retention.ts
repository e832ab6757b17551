import type { Clock, Timer } from "../../async/clock.ts";
import type { HostProcess } from "../../exec/backend/host-backend.ts";
import { endWithSession } from "../../exec/backend/process-state.ts";
import { CLOSED_PROCESS_TTL_MS } from "../server-config.ts";
import type { SessionProcess } from "./session-process.ts";

export interface ProcessRetentionDeps {
  clock: Clock;
  /** Reports whether the session still has this process. */
  has: (entry: SessionProcess) => boolean;
  /** Frees the id of a process and releases the process. */
  remove: (entry: SessionProcess) => void;
}

/**
 * Removes the closed processes of a session after `CLOSED_PROCESS_TTL_MS`. The time starts when the client has received
 * everything and, with `outputAck`, has acknowledged it. A slow or disconnected client therefore does not miss the end.
 */
export class ProcessRetention {
  readonly #deps: ProcessRetentionDeps;
  readonly #timers = new WeakMap<SessionProcess, Timer>();
  /** Removed processes with live descendants. These end with the session. */
  #withOrphans: HostProcess[] = [];

  constructor(deps: ProcessRetentionDeps) {
    this.#deps = deps;
  }

  /** Starts the timer of a process if its client has received everything. Call it whenever that may have changed. */
  update(entry: SessionProcess): void {
    if (this.#timers.has(entry) || !this.#isRemovable(entry)) return;
    const timer = this.#deps.clock.after(CLOSED_PROCESS_TTL_MS, () => this.#expire(entry), {
      keepAlive: false,
    });
    this.#timers.set(entry, timer);
  }

  /** Cancels the timer of a process that the session has removed. */
  cancel(entry: SessionProcess): void {
    this.#timers.get(entry)?.cancel();
  }

  /** Ends the descendants of removed processes when the session ends. */
  endOrphans(): void {
    for (const process of this.#withOrphans) endWithSession(process);
    this.#withOrphans = [];
  }

  #isRemovable(entry: SessionProcess): boolean {
    return this.#deps.has(entry) && entry.isDelivered;
  }

  #expire(entry: SessionProcess): void {
    this.#timers.delete(entry);
    if (!this.#isRemovable(entry)) return;
    this.#deps.remove(entry);
    if (entry.role !== "owner" || entry.shared.outlivesSession) return;
    const withOrphans: HostProcess[] = [];
    for (const process of [...this.#withOrphans, entry.process]) {
      if (process.hasOrphans) withOrphans.push(process);
      // The scan found no descendants. The kill also reaches descendants that a scan does not find.
      else endWithSession(process);
    }
    this.#withOrphans = withOrphans;
  }
}
