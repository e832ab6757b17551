import { waitForTick } from "../../async/slices.ts";
import { estimateChars, type TableRows } from "../input/table-rows.ts";
import { InputError, type JobRecord, type NewItem, otherStop } from "../job.ts";
import type { AnswerSource, JobLedger, ReusedAnswer } from "../ledger/job-ledger.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import type { BackgroundTask } from "./background-tasks.ts";
import type { CoordinatorOptions } from "./coordinator.ts";
import { validAnswers } from "./reuse-answers.ts";

/** Rows appended at a time: few, because the rows in flight wait meanwhile; enough for one block. */
const CHUNK_ROWS = 4_000;
const CHUNK_CHARS = 200_000;

export interface TableIngestionOptions extends Pick<CoordinatorOptions, "store" | "listener"> {
  ledger: JobLedger;
  job: JobRecord;
  task: CompiledTask;
  /** Source of the rows that the ledger does not have. */
  rows: TableRows;
}

/**
 * Reads the rest of a large table into the ledger while the first rows are executed. A row with a reusable answer is
 * appended as completed, so that no process can lease it in between. After an interrupt, the same command continues
 * here.
 */
export class TableIngestion implements BackgroundTask {
  #options: TableIngestionOptions;
  /** Whether more rows may follow. */
  isOpen = true;

  constructor(options: TableIngestionOptions) {
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { store, ledger, job } = this.#options;
    try {
      await using source = job.settings.reuse === false ? null : await store.answersFromOtherJobs(ledger.jobId);
      await this.#readRows(source, signal);
    } catch (error) {
      if (!(error instanceof InputError) || signal.aborted) throw error;
      // Some rows are already paid for. They stay, and a job with the corrected table reuses their answers.
      const hint = error.hint === undefined ? "" : `; ${error.hint}`;
      const reason = `the table cannot be read to its end: ${error.message}${hint}`;
      await ledger.setStatus("failed", ["running"], otherStop(reason));
      return;
    }
    this.isOpen = false;
  }

  async #readRows(source: AnswerSource | null, signal: AbortSignal): Promise<void> {
    const { ledger, rows, listener } = this.#options;
    let total = this.#options.job.totalRows;
    let reused = 0;
    let chunk: NewItem[] = [];
    let chars = 0;
    const write = async () => {
      const answers = source ? await this.#findAnswers(chunk, source) : [];
      await ledger.appendRows(chunk, answers);
      total += chunk.length;
      reused += answers.length;
      chunk = [];
      chars = 0;
      await waitForTick();
    };
    for await (const item of rows.remainingRows(total)) {
      if (signal.aborted) return;
      chunk.push(item);
      chars += estimateChars(item.row);
      if (chunk.length >= CHUNK_ROWS || chars >= CHUNK_CHARS) await write();
    }
    if (signal.aborted) return;
    if (chunk.length > 0) await write();
    await ledger.finishReading(rows.headers, total);
    for (const warning of rows.warnings()) listener?.warning?.(warning);
    if (reused > 0) listener?.reused?.(reused);
  }

  async #findAnswers(items: readonly NewItem[], source: AnswerSource): Promise<ReusedAnswer[]> {
    const questions = new Set(items.flatMap(({ question }) => question ?? []));
    if (questions.size === 0) return [];
    const found = validAnswers(await source.find([...questions]), this.#options.task.check);
    return items.flatMap(({ rowIndex, question }) => {
      const answer = question === undefined ? undefined : found.get(question);
      return answer ? [{ rowIndex, answer }] : [];
    });
  }
}
