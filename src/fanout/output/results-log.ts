import { closeSync, openSync, writeSync } from "node:fs";
import { rename } from "node:fs/promises";
import { usageFields } from "../../agent/usage.ts";
import type { ItemRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";

/**
 * `results.jsonl`: every finished row as it finishes, so that it can be read while the job runs. The ledger is the
 * truth: the file is written anew from it when a run begins, so a crash between the two leaves no trace.
 */
export class ResultsLog {
  #fd: number;
  #written = new Set<string>();

  private constructor(fd: number) {
    this.#fd = fd;
  }

  static async open(file: string, ledger: JobLedger): Promise<ResultsLog> {
    const temporary = `${file}.new`;
    const log = new ResultsLog(openSync(temporary, "w"));
    for await (const item of ledger.items({ statuses: ["completed", "failed"] })) log.append(item);
    await rename(temporary, file);
    return log;
  }

  /** A row that was told before is not told again. */
  append(item: ItemRecord): boolean {
    if (this.#written.has(item.itemId)) return false;
    this.#written.add(item.itemId);
    writeSync(this.#fd, `${resultLine(item)}\n`);
    return true;
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/** A finished row as JSON text. The result goes in as the text that it is: it is not parsed to be written again. */
export function resultLine(item: ItemRecord): string {
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
  });
  return `${before.slice(0, -1)},"result":${item.result ?? "null"},${after.slice(1)}`;
}
