import { rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import type { Clock } from "../../async/clock.ts";
import type { Progress } from "./job-progress.ts";

/** Beside a job's results: the pace of API calls of the process that runs it, for other processes to read. */
export const PACE_FILE = "pace.json";

/** Often enough for a person who watches. */
const WRITE_EVERY_MS = 1_000;

export interface Pace {
  /** When it was written, in milliseconds since the epoch. */
  atMs: number;
  width: number;
  maxWidth: number;
  heldMs: number;
  apiAwaySeconds: number | null;
}

/** Writes the pace of a run while it lasts; a failed write is ignored. */
export class PaceFile {
  readonly #file: string;
  readonly #clock: Clock;
  #writing: Promise<void> | null = null;
  #nextAtMs = Number.NEGATIVE_INFINITY;

  constructor(folder: string, clock: Clock) {
    this.#file = path.join(folder, PACE_FILE);
    this.#clock = clock;
  }

  tell({ width, maxWidth, heldMs, apiAway }: Progress): void {
    if (this.#writing || this.#clock.monotonic() < this.#nextAtMs) return;
    this.#nextAtMs = this.#clock.monotonic() + WRITE_EVERY_MS;
    const pace: Pace = {
      atMs: this.#clock.now(),
      width,
      maxWidth,
      heldMs: Math.round(heldMs),
      apiAwaySeconds: apiAway?.seconds ?? null,
    };
    this.#writing = this.#write(JSON.stringify(pace))
      .catch(() => undefined)
      .finally(() => {
        this.#writing = null;
      });
  }

  async close(): Promise<void> {
    await this.#writing;
    await rm(this.#file, { force: true }).catch(() => undefined);
  }

  async #write(text: string): Promise<void> {
    // A temporary name of this process, then an atomic rename: a reader never finds a partial file.
    const temporary = `${this.#file}.${process.pid}.new`;
    await writeFile(temporary, text);
    await rename(temporary, this.#file);
  }
}
