import type { StoredAnswer } from "../job.ts";

/** The text of an attempt that reused another job's answer. */
export function reusedText(answer: StoredAnswer): string {
  return `answered by item ${answer.itemId} of job ${answer.jobId}`;
}
