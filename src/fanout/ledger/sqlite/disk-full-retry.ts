import { statfs } from "node:fs/promises";
import path from "node:path";
import { isObject } from "../../../agent/api/response-events.ts";
import { type Clock, systemClock } from "../../../async/clock.ts";
import { Outage } from "../../../async/outage.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import { CHANGE_NOTHING } from "./sqlite-statements.ts";

/** Options for waiting while the ledger's file cannot be written. */
export interface PatienceOptions {
  clock?: Clock | undefined;
  /** How long the ledger may be unwritable before the work on its rows is given up. */
  outagePatienceMs?: number | undefined;
  /** Aborted when the user interrupts the run. */
  signal?: AbortSignal | undefined;
  /** Called when the ledger becomes unwritable, and when it is writable again. */
  onError?: ((error: unknown) => void) | undefined;
}

/** Time for a person to notice and to free disk space. */
const DEFAULT_PATIENCE_MS = 10 * 60_000;
/** With less free space than this the next reports would fail again. */
const ROOM_BYTES = 1024 * 1024;

/** SQLite's primary result codes: another process locks it for too long, the disk failed, the disk is full. */
const UNWRITABLE: ReadonlySet<number> = new Set([5, 10, 13]);

/** Delays changes of a ledger while its file cannot be written, so that paid answers are not lost to a full disk. */
export function waitForRoom(db: SqliteDatabase, file: string, options: PatienceOptions): Outage {
  return new Outage({
    words: {
      waiting: "the ledger can be written",
      back: "the ledger can be written again",
      gaveUp: "the ledger could not be written",
    },
    isLoss: (error) => error instanceof NoRoomError || isUnwritable(error),
    probe: async () => {
      const { bavail, bsize } = await statfs(path.dirname(file));
      if (bavail * bsize < ROOM_BYTES) throw new NoRoomError("database or disk is full");
      db.run(CHANGE_NOTHING);
    },
    patienceMs: options.outagePatienceMs ?? DEFAULT_PATIENCE_MS,
    clock: options.clock ?? systemClock,
    signal: options.signal,
    tell: (message) => options.onError?.(new Error(message)),
  });
}

class NoRoomError extends Error {}

export function isUnwritable(error: unknown): boolean {
  return isObject(error) && typeof error.errcode === "number" && UNWRITABLE.has(error.errcode & 0xff);
}
