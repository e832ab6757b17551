/** What the ids of a row agent's processes begin with, so that who looks at the row finds them in a server's list. */
export function rowProcessPrefix(jobId: string, rowIndex: number): string {
  return `row-${jobId.slice(0, 8)}-${rowIndex}-`;
}
