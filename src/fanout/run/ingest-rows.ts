import { setImmediate as nextTurn } from "node:timers/promises";
import { roughChars, type TableRows } from "../input/table-rows.ts";
import type { NewItem, StoredAnswer } from "../job.ts";
import type { AnswerSource, JobLedger, JobStore } from "../ledger/job-ledger.ts";
import type { ResultCheck } from "../row/result-check.ts";
import { fittingAnswers } from "./reuse-answers.ts";

/** Rows appended to the ledger at a time: few, because the rows under way wait meanwhile, and enough for a block of them. */
const CHUNK_ROWS = 4_000;
const CHUNK_CHARS = 200_000;

export interface ReadRestOptions {
  store: JobStore;
  ledger: JobLedger;
  rows: TableRows;
  /** The first row that the ledger does not have. */
  fromRow: number;
  /** Set where answers of other jobs may be reused. */
  check: ResultCheck | null;
  signal: AbortSignal;
  onWarning?: ((message: string) => void) | undefined;
  onReused?: ((rows: number) => void) | undefined;
}

/**
 * Reads the rest of a large table into the ledger while its first rows are being worked on. A row that another job has
 * answered is appended with that answer, so it cannot be claimed in between. After an interruption the same command continues
 * where this ended.
 */
export async function readRest(options: ReadRestOptions): Promise<void> {
  const { store, ledger, rows, signal } = options;
  await using source = options.check ? await store.answersOutside(ledger.jobId) : null;
  let total = options.fromRow;
  let reused = 0;
  let chunk: NewItem[] = [];
  let chars = 0;
  const write = async () => {
    const answers = await answersTo(chunk, source, options.check);
    await ledger.append(chunk, answers);
    total += chunk.length;
    reused += answers.length;
    chunk = [];
    chars = 0;
    await nextTurn();
  };
  for await (const item of rows.rest(options.fromRow)) {
    if (signal.aborted) return;
    chunk.push(item);
    chars += roughChars(item.row);
    if (chunk.length >= CHUNK_ROWS || chars >= CHUNK_CHARS) await write();
  }
  if (signal.aborted) return;
  if (chunk.length > 0) await write();
  await ledger.finishReading(rows.headers, total);
  for (const warning of rows.warnings()) options.onWarning?.(warning);
  if (reused > 0) options.onReused?.(reused);
}

async function answersTo(
  items: readonly NewItem[],
  source: AnswerSource | null,
  check: ResultCheck | null,
): Promise<{ rowIndex: number; answer: StoredAnswer }[]> {
  if (!source || !check) return [];
  const questions = new Set(items.flatMap(({ question }) => question ?? []));
  if (questions.size === 0) return [];
  const found = fittingAnswers(await source.find([...questions]), check);
  return items.flatMap(({ rowIndex, question }) => {
    const answer = question === undefined ? undefined : found.get(question);
    return answer ? [{ rowIndex, answer }] : [];
  });
}
