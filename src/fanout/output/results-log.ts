import { closeSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { usageFields } from "../../agent/token-usage.ts";
import { costOf, type Price } from "../cost/price-table.ts";
import type { ItemRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";

/**
 * `results.jsonl`: every row as it finishes, so that it can be read while the job runs. The ledger is
 * authoritative: the file is rewritten from it when a run begins, which repairs the effects of a crash between the two writes.
 */
export class ResultsLog {
  #file: string;
  #ledger: JobLedger;
  #price: Price | null;
  #fd: number;
  #sizeBytes = 0;
  #written = new Set<number>();
  /** The disk had no room for a line: the file stops before it until it is rewritten. */
  #isBehind = false;

  private constructor(file: string, ledger: JobLedger, price: Price | null, fd: number) {
    this.#price = price;
    this.#file = file;
    this.#ledger = ledger;
    this.#fd = fd;
  }

  static async open(file: string, ledger: JobLedger, price: Price | null): Promise<ResultsLog> {
    // A name of this process alone: several may work on a job of a database from one folder.
    const temporary = `${file}.${process.pid}.new`;
    const log = new ResultsLog(file, ledger, price, openSync(temporary, "w"));
    try {
      for await (const item of ledger.items({ statuses: ["completed", "failed"] })) {
        log.#written.add(item.rowIndex);
        log.#write(item);
      }
      await rename(temporary, file);
      return log;
    } catch (error) {
      log.close();
      await rm(temporary, { force: true });
      throw error;
    }
  }

  /** Returns false for a row that was appended before. */
  append(item: ItemRecord): boolean {
    if (this.#written.has(item.rowIndex)) return false;
    this.#written.add(item.rowIndex);
    if (this.#isBehind) return true;
    try {
      this.#write(item);
    } catch {
      // A full disk stops no row: the ledger has the row, and the file gets it at the end.
      this.#isBehind = true;
      ftruncateSync(this.#fd, this.#sizeBytes);
    }
    return true;
  }

  /** At the end of a run: writes what could not be written before. Rejects if it still cannot be. */
  async catchUp(): Promise<void> {
    if (!this.#isBehind) return;
    const whole = await ResultsLog.open(this.#file, this.#ledger, this.#price);
    whole.close();
    this.#isBehind = false;
  }

  close(): void {
    closeSync(this.#fd);
  }

  #write(item: ItemRecord): void {
    const line = Buffer.from(`${resultLine(item, this.#price)}\n`);
    for (let from = 0; from < line.length; ) from += writeSync(this.#fd, line, from);
    this.#sizeBytes += line.length;
  }
}

/** A finished row as JSON text. The result is inserted as its text, without parsing it again. */
export function resultLine(item: ItemRecord, price?: Price | null): string {
  const before = JSON.stringify({
    item_id: item.itemId,
    row_index: item.rowIndex,
    source_id: item.sourceId,
    status: item.status,
    attempt_count: item.attempts,
  });
  const after = JSON.stringify({
    error_class: item.errorClass,
    last_error: item.error,
    usage: usageFields(item.usage),
    // Left out where `price` is undefined.
    cost_usd: price && costOf(price, item.usage),
  });
  return `${before.slice(0, -1)},"result":${item.result ?? "null"},${after.slice(1)}`;
}
