import { statfs } from "node:fs/promises";
import path from "node:path";
import { isObject } from "../../../agent/response-events.ts";
import { type Clock, systemClock } from "../../../async/clock.ts";
import { Outage } from "../../../async/outage.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import { CHANGE_NOTHING } from "./sqlite-statements.ts";

/** What waiting for a file that cannot be written depends on. */
export interface PatienceOptions {
  clock?: Clock | undefined;
  /** How long the ledger may be impossible to write before the work on its rows is given up. */
  outagePatienceMs?: number | undefined;
  /** Aborted when the user wants out. */
  signal?: AbortSignal | undefined;
  /** Told when the ledger cannot be written, and when it can be again. */
  onError?: ((error: unknown) => void) | undefined;
}

/** Time to notice, and to make room. */
const DEFAULT_PATIENCE_MS = 10 * 60_000;
/** With less room than this the next reports would only fail again. */
const ROOM_BYTES = 1024 * 1024;

/** SQLite's codes, without their details: another process holds it for too long, the disk failed, the disk is full. */
const UNWRITABLE: ReadonlySet<number> = new Set([5, 10, 13]);

/** Has changes of a ledger wait while its file cannot be written: what was paid for is not thrown away for want of room. */
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
