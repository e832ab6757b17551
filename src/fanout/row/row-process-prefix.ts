/** Prefix of the ids of a row agent's processes, by which they are found in a server's list. */
export function rowProcessPrefix(jobId: string, rowIndex: number): string {
  return `row-${jobId.slice(0, 8)}-${rowIndex}-`;
}
