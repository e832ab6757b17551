import type { TtyState } from "./exec-process.ts";

/**
 * What a terminal waits for, as far as its state tells. A program in raw mode waits for a key. One that reads lines may just
 * be busy, unless it has turned echo off.
 */
export function awaitedBy(tty: TtyState): "key" | "secret" | undefined {
  if (!tty.canonical) return "key";
  return tty.echo ? undefined : "secret";
}
