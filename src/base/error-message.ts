/** The message of anything thrown: JavaScript lets more than errors be thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
