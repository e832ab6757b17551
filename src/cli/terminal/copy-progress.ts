import { type Clock, systemClock } from "../../async/clock.ts";
import type { CopyTotals } from "../../client/copy/copy-types.ts";

/** Minimum time between two redraws. */
const REDRAW_INTERVAL_MS = 100;
const BAR_WIDTH = 24;
const CLEAR_LINE = "\r\x1b[K";

/** Progress line of a copy, redrawn in place on a terminal. */
export class CopyProgress {
  readonly #out: { write(text: string): unknown; columns?: number | undefined };
  readonly #clock: Clock;
  readonly #startedAt: number;
  #drawnAt = Number.NEGATIVE_INFINITY;

  constructor(out: { write(text: string): unknown; columns?: number | undefined }, clock: Clock = systemClock) {
    this.#out = out;
    this.#clock = clock;
    this.#startedAt = clock.monotonic();
  }

  update(totals: CopyTotals): void {
    const now = this.#clock.monotonic();
    if (now - this.#drawnAt < REDRAW_INTERVAL_MS) return;
    this.#drawnAt = now;
    const line = progressLine(totals, (now - this.#startedAt) / 1000);
    this.#out.write(`${CLEAR_LINE}${line.slice(0, (this.#out.columns ?? 80) - 1)}`);
  }

  /** Replaces the progress line by a summary. */
  finish(totals: CopyTotals): void {
    const seconds = (this.#clock.monotonic() - this.#startedAt) / 1000;
    const files = totals.files === 1 ? "1 file" : `${totals.files} files`;
    const unchanged = totals.unchanged > 0 ? `, ${totals.unchanged} of them unchanged` : "";
    this.#out.write(`${CLEAR_LINE}${files}${unchanged}, ${sizeText(totals.bytes)} in ${seconds.toFixed(1)} s\n`);
  }

  clear(): void {
    this.#out.write(CLEAR_LINE);
  }
}

export function progressLine(totals: CopyTotals, seconds: number): string {
  const { bytes, totalBytes, files, totalFiles, isCounted } = totals;
  const part = totalBytes > 0 ? Math.min(bytes / totalBytes, 1) : 0;
  const full = Math.round(part * BAR_WIDTH);
  const bar = `[${"#".repeat(full)}${" ".repeat(BAR_WIDTH - full)}]`;
  const rate = seconds > 0 ? bytes / seconds : 0;
  const left = isCounted && rate > 0 ? `, ${Math.ceil((totalBytes - bytes) / rate)} s left` : "";
  const percent = `${Math.floor(part * 100)}%`.padStart(4);
  const many = totalFiles > 1 ? `, ${files} of ${totalFiles}${isCounted ? "" : "+"} files` : "";
  return `${bar}${percent}  ${sizeText(bytes)} of ${sizeText(totalBytes)}, ${sizeText(rate)}/s${left}${many}`;
}

function sizeText(bytes: number): string {
  let size = bytes;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (size < 1024) return `${unit === "B" ? Math.round(size) : size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} GiB`;
}
