import { isObject } from "../../agent/api/response-events.ts";
import type { StoredAnswer } from "../job.ts";
import type { JobLedger, JobStore } from "../ledger/job-ledger.ts";
import type { ResultCheck } from "../row/result-check.ts";

/** Rows looked up at a time. */
const PAGE_ROWS = 1_000;

/**
 * Completes the rows whose question another job has answered, where the answer fits this job's schema. Only rows without
 * any attempt are considered. Returns how many were completed.
 */
export async function reuseAnswers(
  store: JobStore,
  ledger: JobLedger,
  check: ResultCheck,
  signal: AbortSignal,
): Promise<number> {
  let reused = 0;
  let page = await ledger.unasked(-1, PAGE_ROWS);
  if (page.length === 0) return 0;
  await using source = await store.answersOutside(ledger.jobId);
  for (;;) {
    const found = fittingAnswers(await source.find([...new Set(page.map((row) => row.question))]), check);
    const adopted = page.flatMap(({ rowIndex, question }) => {
      const answer = found.get(question);
      return answer ? [{ rowIndex, answer }] : [];
    });
    reused += await ledger.adopt(adopted);
    const last = page.at(-1);
    if (!last || page.length < PAGE_ROWS || signal.aborted) return reused;
    page = await ledger.unasked(last.rowIndex, PAGE_ROWS);
  }
}

/** For each question, the first answer that fits the schema. */
export function fittingAnswers(
  answers: readonly StoredAnswer[],
  check: ResultCheck,
): Map<string, StoredAnswer> {
  const found = new Map<string, StoredAnswer>();
  for (const answer of answers) {
    if (found.has(answer.question)) continue;
    const result: unknown = JSON.parse(answer.result);
    if (isObject(result) && check(result).length === 0) found.set(answer.question, answer);
  }
  return found;
}
