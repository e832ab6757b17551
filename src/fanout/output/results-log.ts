import { ftruncateSync, writeSync } from "node:fs";
import { usageFields } from "../../agent/token-usage.ts";
import type { OutputDirectory, PendingFile } from "../../files/output-directory.ts";
import { costInUsd, type Price } from "../cost/price-table.ts";
import type { ItemRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";

const RESULTS_FILE = "results.jsonl";

/**
 * `results.jsonl`: every row as it finishes, for readers during the run. The ledger is authoritative: each run rewrites
 * the file from it, which repairs the effects of a crash between the two writes.
 */
export class ResultsLog {
  #directory: OutputDirectory;
  #ledger: JobLedger;
  #price: Price | null;
  #file: PendingFile;
  #sizeBytes = 0;
  #written = new Set<number>();
  /** Whether a line did not fit on the disk. The file then ends before that line until `catchUp` rewrites the file. */
  #isBehind = false;

  private constructor(directory: OutputDirectory, ledger: JobLedger, price: Price | null, file: PendingFile) {
    this.#price = price;
    this.#directory = directory;
    this.#ledger = ledger;
    this.#file = file;
  }

  /** `directory`: the job directory. It must stay open until `close`. */
  static async open(directory: OutputDirectory, ledger: JobLedger, price: Price | null): Promise<ResultsLog> {
    const log = new ResultsLog(directory, ledger, price, await directory.create());
    try {
      for await (const item of ledger.items({ statuses: ["completed", "failed"] })) {
        log.#written.add(item.rowIndex);
        log.#write(item);
      }
      log.#file.commit(RESULTS_FILE);
      return log;
    } catch (error) {
      await log.close();
      throw error;
    }
  }

  /** Appends a row. Returns false if the row was appended before. */
  append(item: ItemRecord): boolean {
    if (this.#written.has(item.rowIndex)) return false;
    this.#written.add(item.rowIndex);
    if (this.#isBehind) return true;
    try {
      this.#write(item);
    } catch {
      // A full disk does not stop the run: the ledger has the row, and `catchUp` writes it at the end.
      this.#isBehind = true;
      ftruncateSync(this.#file.handle.fd, this.#sizeBytes);
    }
    return true;
  }

  /** Writes the missing rows at the end of a run. Rejects if that still fails. */
  async catchUp(): Promise<void> {
    if (!this.#isBehind) return;
    const rewritten = await ResultsLog.open(this.#directory, this.#ledger, this.#price);
    await rewritten.close();
    this.#isBehind = false;
  }

  async close(): Promise<void> {
    await this.#file[Symbol.asyncDispose]();
  }

  #write(item: ItemRecord): void {
    const line = Buffer.from(`${resultLine(item, this.#price)}\n`);
    for (let from = 0; from < line.length; ) from += writeSync(this.#file.handle.fd, line, from);
    this.#sizeBytes += line.length;
  }
}

/** Returns a finished row as JSON. The result is inserted as text, without parsing. */
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
    // Omitted if `price` is undefined.
    cost_usd: price && costInUsd(price, item.usage),
  });
  return `${before.slice(0, -1)},"result":${item.result ?? "null"},${after.slice(1)}`;
}
