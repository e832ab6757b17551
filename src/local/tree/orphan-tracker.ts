import { constants } from "node:os";
import { type Clock, sleep, type Timer } from "../../async/clock.ts";
import type { SubreaperControl } from "../platform.ts";
import { readOrEmpty } from "./proc-files.ts";
import type { ProcessEntry, ProcessIdentity, ProcessTable } from "./process-table.ts";

/** Maximum time in which a shutdown kills the remaining orphans. The watchdog kills processes that fork faster. */
const SWEEP_TIMEOUT_MS = 1000;
const SWEEP_PAUSE_MS = 5;
/** Interval between two scans for dead orphans while orphans may exist. */
const SCAN_INTERVAL_MS = 1000;

/** A process whose parent exited and whose process tree is unknown. */
export interface Orphan {
  pid: number;
  command: string;
}

export interface OrphanTrackerOptions {
  reaper: SubreaperControl;
  table: ProcessTable;
  clock: Clock;
}

/**
 * Makes this server the subreaper of its descendants, so that it adopts orphans instead of init. Reaps dead orphans by
 * pid and kills live orphans at shutdown. Live children in the server's own POSIX session are left alone: other
 * code of this server started them and waits for them.
 */
export class OrphanTracker {
  readonly #options: OrphanTrackerOptions;
  readonly #posixSession: number | null;
  /** The orphans of the last scan. */
  #known: ReadonlyMap<number, ProcessIdentity> = new Map();
  #timer: Timer | null = null;
  #scansLeft = 0;

  constructor(options: OrphanTrackerOptions) {
    this.#options = options;
    this.#posixSession = options.table.entry(process.pid)?.session ?? null;
    options.reaper.setSubreaper(true);
  }

  /** Starts scanning. Called when a process starts or exits, because orphans may follow. */
  track(): void {
    this.#scansLeft = 2;
    this.#timer ??= this.#options.clock.after(SCAN_INTERVAL_MS, () => this.#scan(), { keepAlive: false });
  }

  /** Kills all remaining orphans and returns them. */
  async endAll(): Promise<Orphan[]> {
    const { table, clock } = this.#options;
    const found = new Map<number, Orphan>();
    const deadline = clock.monotonic() + SWEEP_TIMEOUT_MS;
    for (;;) {
      const orphans = this.#children().filter(({ session }) => session !== this.#posixSession);
      for (const { pid, zombie } of orphans) if (zombie) this.#options.reaper.reap(pid);
      const living = orphans.filter((orphan) => !orphan.zombie);
      if (living.length === 0 || clock.monotonic() > deadline) break;
      for (const orphan of living) {
        for (const process of [orphan, ...table.descendants(orphan.pid)]) {
          if (!found.has(process.pid))
            found.set(process.pid, { pid: process.pid, command: readCommandLine(process.pid) });
          table.signal(process, constants.signals.SIGKILL);
        }
      }
      await sleep(clock, SWEEP_PAUSE_MS);
    }
    return [...found.values()];
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#options.reaper.setSubreaper(false);
  }

  #scan(): void {
    this.#timer = null;
    // A live child in the server's own POSIX session belongs to other code of this server; a zombie may be an orphan.
    const orphans = this.#children().filter(({ zombie, session }) => zombie || session !== this.#posixSession);
    for (const { pid, startTime, zombie } of orphans) {
      // Reap only zombies that the last scan saw too: other code has reaped its own children by now.
      if (zombie && this.#known.get(pid)?.startTime === startTime) this.#options.reaper.reap(pid);
    }
    this.#known = new Map(orphans.map((orphan) => [orphan.pid, orphan]));
    if (orphans.length > 0) this.#scansLeft = 2;
    if (--this.#scansLeft > 0)
      this.#timer = this.#options.clock.after(SCAN_INTERVAL_MS, () => this.#scan(), { keepAlive: false });
  }

  #children(): ProcessEntry[] {
    const { table } = this.#options;
    return table.orphanPids().flatMap((pid) => table.entry(pid) ?? []);
  }
}

export function readCommandLine(pid: number): string {
  const commandLine = readOrEmpty(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim();
  return commandLine || readOrEmpty(`/proc/${pid}/comm`).trim();
}
