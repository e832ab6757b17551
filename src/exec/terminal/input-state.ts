import type { TtyState } from "../exec-process.ts";

/**
 * Returns the kind of input that a terminal state suggests. Raw mode means a key. Line mode without echo means a
 * secret. Line mode with echo says nothing: the process may be busy.
 */
export function inputStateOf(tty: TtyState): "key" | "secret" | undefined {
  if (!tty.canonical) return "key";
  return tty.echo ? undefined : "secret";
}
