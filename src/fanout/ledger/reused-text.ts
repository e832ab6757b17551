import type { StoredAnswer } from "../job.ts";

/** What an attempt that asked nobody says of itself. */
export function reusedText(answer: StoredAnswer): string {
  return `answered by item ${answer.itemId} of job ${answer.jobId}`;
}
