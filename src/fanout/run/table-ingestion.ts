import type { TableRows } from "../input/table-rows.ts";
import { InputError, type JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import type { BackgroundTask } from "./background-tasks.ts";
import type { CoordinatorOptions } from "./coordinator.ts";
import { ingestRemainingRows } from "./ingest-rows.ts";

/** Reads the rest of the table while its first rows are executed. */
export class TableIngestion implements BackgroundTask {
  #options: CoordinatorOptions;
  #ledger: JobLedger;
  #job: JobRecord;
  #task: CompiledTask;
  #rows: TableRows;
  /** Whether more rows may follow. */
  isOpen = true;

  constructor(
    options: CoordinatorOptions,
    ledger: JobLedger,
    job: JobRecord,
    task: CompiledTask,
    rows: TableRows,
  ) {
    this.#options = options;
    this.#ledger = ledger;
    this.#job = job;
    this.#task = task;
    this.#rows = rows;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { store, listener } = this.#options;
    try {
      await ingestRemainingRows({
        store,
        ledger: this.#ledger,
        rows: this.#rows,
        fromRow: this.#job.totalRows,
        check: this.#job.settings.reuse === false ? null : this.#task.check,
        signal,
        onWarning: (message) => listener?.warning?.(message),
        onReused: (rows) => listener?.reused?.(rows),
      });
    } catch (error) {
      if (!(error instanceof InputError) || signal.aborted) throw error;
      // Some rows are already paid for. They stay, and a job with the corrected table reuses their answers.
      const reason = `the table cannot be read to its end: ${error.message}`;
      await this.#ledger.setStatus("failed", ["running"], reason);
      return;
    }
    this.isOpen = false;
  }
}
