/** What went wrong, in a line: JavaScript lets anything be thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
