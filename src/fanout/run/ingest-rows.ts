import { setImmediate as nextTurn } from "node:timers/promises";
import { estimateChars, type TableRows } from "../input/table-rows.ts";
import type { NewItem, StoredAnswer } from "../job.ts";
import type { AnswerSource, JobLedger, JobStore } from "../ledger/job-ledger.ts";
import type { ResultCheck } from "../row/result-check.ts";
import { validAnswers } from "./reuse-answers.ts";

/** Rows appended at a time: few, because the rows in flight wait meanwhile; enough for one block. */
const CHUNK_ROWS = 4_000;
const CHUNK_CHARS = 200_000;

export interface ReadRestOptions {
  store: JobStore;
  ledger: JobLedger;
  rows: TableRows;
  /** Index of the first row that the ledger does not have. */
  fromRow: number;
  /** Checks reused answers; null if answers of other jobs are not reused. */
  check: ResultCheck | null;
  signal: AbortSignal;
  onWarning?: ((message: string) => void) | undefined;
  onReused?: ((rows: number) => void) | undefined;
}

/**
 * Reads the rest of a large table into the ledger while the first rows are executed. A row with a reusable answer is
 * appended as completed, so that no process can lease it in between. After an interrupt, the same command continues
 * here.
 */
export async function ingestRemainingRows(options: ReadRestOptions): Promise<void> {
  const { store, ledger, rows, signal } = options;
  await using source = options.check ? await store.answersFromOtherJobs(ledger.jobId) : null;
  let total = options.fromRow;
  let reused = 0;
  let chunk: NewItem[] = [];
  let chars = 0;
  const write = async () => {
    const answers = await findReusableAnswers(chunk, source, options.check);
    await ledger.appendRows(chunk, answers);
    total += chunk.length;
    reused += answers.length;
    chunk = [];
    chars = 0;
    await nextTurn();
  };
  for await (const item of rows.remainingRows(options.fromRow)) {
    if (signal.aborted) return;
    chunk.push(item);
    chars += estimateChars(item.row);
    if (chunk.length >= CHUNK_ROWS || chars >= CHUNK_CHARS) await write();
  }
  if (signal.aborted) return;
  if (chunk.length > 0) await write();
  await ledger.finishReading(rows.headers, total);
  for (const warning of rows.warnings()) options.onWarning?.(warning);
  if (reused > 0) options.onReused?.(reused);
}

async function findReusableAnswers(
  items: readonly NewItem[],
  source: AnswerSource | null,
  check: ResultCheck | null,
): Promise<{ rowIndex: number; answer: StoredAnswer }[]> {
  if (!source || !check) return [];
  const questions = new Set(items.flatMap(({ question }) => question ?? []));
  if (questions.size === 0) return [];
  const found = validAnswers(await source.find([...questions]), check);
  return items.flatMap(({ rowIndex, question }) => {
    const answer = question === undefined ? undefined : found.get(question);
    return answer ? [{ rowIndex, answer }] : [];
  });
}
