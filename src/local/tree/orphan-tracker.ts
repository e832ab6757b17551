import { readFileSync } from "node:fs";
import { constants } from "node:os";
import type { Clock, Timer } from "../../async/clock.ts";
import { sleep } from "../../async/clock.ts";
import type { OrphanReaper } from "../platform.ts";
import type { ProcessEntry, ProcessIdentity, ProcessTable } from "./process-table.ts";

/** How long the last orphans are killed at shutdown; a process that forks faster than this is left to the watchdog. */
const HUNT_MS = 1000;
const HUNT_PAUSE_MS = 5;

/** A process that came to this program because its parent ended, and that descends from no known process. */
export interface Orphan {
  pid: number;
  command: string;
}

export interface OrphanKeeperOptions {
  reaper: OrphanReaper;
  table: ProcessTable;
  clock: Clock;
}

/** Between two looks for dead orphans while there may be any. */
const LOOK_EVERY_MS = 1000;

/**
 * Makes this program the subreaper of what it starts: orphans come to it instead of to init. Reaps the dead ones, each
 * by its number, and ends the living at shutdown. Living children of this program's own session are left alone:
 * other code in this program started them and waits for them.
 */
export class OrphanKeeper {
  readonly #options: OrphanKeeperOptions;
  readonly #ownSession: number;
  readonly #known = new Map<number, ProcessIdentity>();
  #timer: Timer | null = null;
  #looksLeft = 0;

  constructor(options: OrphanKeeperOptions) {
    this.#options = options;
    this.#ownSession = options.table.entry(process.pid)?.session ?? 0;
    options.reaper.setSubreaper(true);
  }

  /** To be called when something was started or has ended: orphans may come. */
  expect(): void {
    this.#looksLeft = 2;
    this.#timer ??= this.#options.clock.after(LOOK_EVERY_MS, () => this.#look(), { keepAlive: false });
  }

  /** Ends every orphan that is left and returns which they were. */
  async endAll(): Promise<Orphan[]> {
    const { table, clock } = this.#options;
    const found = new Map<number, Orphan>();
    const deadline = clock.monotonic() + HUNT_MS;
    for (;;) {
      const orphans = this.#orphans();
      for (const { pid, zombie } of orphans) if (zombie) this.#options.reaper.reap(pid);
      const living = orphans.filter((orphan) => !orphan.zombie);
      if (living.length === 0 || clock.monotonic() > deadline) break;
      for (const orphan of living) {
        for (const process of [orphan, ...table.descendants(orphan.pid)]) {
          if (!found.has(process.pid))
            found.set(process.pid, { pid: process.pid, command: commandOf(process.pid) });
          table.signal(process, constants.signals.SIGKILL);
        }
      }
      await sleep(clock, HUNT_PAUSE_MS);
    }
    return [...found.values()];
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#options.reaper.setSubreaper(false);
  }

  #look(): void {
    this.#timer = null;
    // Living children of this program's own session were started by other code here; a dead one may still be an orphan.
    const orphans = this.#children().filter(({ zombie, session }) => zombie || session !== this.#ownSession);
    for (const { pid, startTime, zombie } of orphans) {
      // Only zombies that were there at the last look too: code here that waits for its own child has reaped it by now.
      if (zombie && this.#known.get(pid)?.startTime === startTime) this.#options.reaper.reap(pid);
    }
    this.#known.clear();
    for (const orphan of orphans) this.#known.set(orphan.pid, orphan);
    if (orphans.length > 0) this.#looksLeft = 2;
    if (--this.#looksLeft > 0)
      this.#timer = this.#options.clock.after(LOOK_EVERY_MS, () => this.#look(), { keepAlive: false });
  }

  #orphans(): ProcessEntry[] {
    return this.#children().filter(({ session }) => session !== this.#ownSession);
  }

  #children(): ProcessEntry[] {
    const { table } = this.#options;
    return table.orphanPids().flatMap((pid) => table.entry(pid) ?? []);
  }
}

export function commandOf(pid: number): string {
  try {
    const commandLine = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim();
    return commandLine || readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch {
    return "";
  }
}
