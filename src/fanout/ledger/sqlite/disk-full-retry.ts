import { statfs } from "node:fs/promises";
import path from "node:path";
import { type Clock, systemClock } from "../../../async/clock.ts";
import { OutageRetry } from "../../../async/outage-retry.ts";
import { isObject } from "../../../base/type-guards.ts";
import { DEFAULT_OUTAGE_TIMEOUT_MS } from "../../job-settings.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import { PROBE_WRITE } from "./sqlite-statements.ts";

/** Options of the wait for an unwritable ledger. */
export interface DiskFullOptions {
  clock?: Clock | undefined;
  /** Maximum time without a writable ledger before the run fails. */
  outageTimeoutMs?: number | undefined;
  /** Aborts when the user interrupts the run. */
  signal?: AbortSignal | undefined;
  /** Called when the ledger becomes unwritable, and when it is writable again. */
  onError?: ((error: unknown) => void) | undefined;
}

/** With less free space, the next reports would fail again. */
const MIN_FREE_BYTES = 1024 * 1024;

/** SQLite result codes: locked for too long (5), I/O error (10), disk full (13). */
const UNWRITABLE: ReadonlySet<number> = new Set([5, 10, 13]);

/** Delays changes while the ledger is unwritable, so that a full disk loses no paid answers. */
export function retryWhileDiskFull(db: SqliteDatabase, file: string, options: DiskFullOptions): OutageRetry {
  return new OutageRetry({
    messages: {
      waiting: "the ledger can be written",
      back: "the ledger can be written again",
      gaveUp: "the ledger could not be written",
    },
    isOutage: (error) => error instanceof DiskFullError || isUnwritable(error),
    probe: async () => {
      const { bavail, bsize } = await statfs(path.dirname(file));
      if (bavail * bsize < MIN_FREE_BYTES) throw new DiskFullError("database or disk is full");
      db.run(PROBE_WRITE);
    },
    timeoutMs: options.outageTimeoutMs ?? DEFAULT_OUTAGE_TIMEOUT_MS,
    clock: options.clock ?? systemClock,
    signal: options.signal,
    report: (message) => options.onError?.(new Error(message)),
  });
}

class DiskFullError extends Error {}

export function isUnwritable(error: unknown): boolean {
  return isObject(error) && typeof error.errcode === "number" && UNWRITABLE.has(error.errcode & 0xff);
}
