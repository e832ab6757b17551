import { isObject } from "../../base/type-guards.ts";
import type { StoredAnswer } from "../job.ts";
import type { JobLedger, JobStore } from "../ledger/job-ledger.ts";
import type { ResultCheck } from "../row/result-check.ts";

/** Rows per lookup. */
const PAGE_ROWS = 1_000;

/**
 * Completes rows without an attempt with answers of other jobs that match the schema of this job. Returns their number.
 */
export async function reuseAnswers(
  store: JobStore,
  ledger: JobLedger,
  check: ResultCheck,
  signal: AbortSignal,
): Promise<number> {
  let reused = 0;
  let page = await ledger.unattempted(-1, PAGE_ROWS);
  if (page.length === 0) return 0;
  await using source = await store.answersFromOtherJobs(ledger.jobId);
  for (;;) {
    const found = validAnswers(await source.find([...new Set(page.map((row) => row.question))]), check);
    const reusable = page.flatMap(({ rowIndex, question }) => {
      const answer = found.get(question);
      return answer ? [{ rowIndex, answer }] : [];
    });
    reused += await ledger.completeWithReused(reusable);
    const last = page.at(-1);
    if (!last || page.length < PAGE_ROWS || signal.aborted) return reused;
    page = await ledger.unattempted(last.rowIndex, PAGE_ROWS);
  }
}

/** Returns the first answer to each question that matches the schema. */
export function validAnswers(answers: readonly StoredAnswer[], check: ResultCheck): Map<string, StoredAnswer> {
  const found = new Map<string, StoredAnswer>();
  for (const answer of answers) {
    if (found.has(answer.question)) continue;
    const result: unknown = JSON.parse(answer.result);
    if (isObject(result) && check(result).length === 0) found.set(answer.question, answer);
  }
  return found;
}
