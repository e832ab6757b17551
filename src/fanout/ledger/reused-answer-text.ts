import type { StoredAnswer } from "../job.ts";

/** Returns the message of an attempt that reused an answer. */
export function reusedAnswerText(answer: StoredAnswer): string {
  return `answered by item ${answer.itemId} of job ${answer.jobId}`;
}
