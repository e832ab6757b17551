/** The terminal in front of this program: its size, its keys and its signals. */

import type { ExecProcess, TerminalSize } from "../../exec/exec-process.ts";

/** Returns the size of the local terminal, or null if stdout is not a terminal. */
export function localTerminalSize(): TerminalSize | null {
  const { rows, columns } = process.stdout;
  return process.stdout.isTTY && rows > 0 && columns > 0 ? { rows, cols: columns } : null;
}

/** This program's own terminal, with every key passed on instead of being acted on here. */
export class RawTerminal {
  #isRaw = false;
  readonly #leave = () => this.leave();

  enter(): void {
    if (!process.stdin.isTTY) return;
    process.stdin.setRawMode(true);
    this.#isRaw = true;
    // Also when something unforeseen ends the program.
    process.once("exit", this.#leave);
  }

  leave(): void {
    if (!this.#isRaw) return;
    this.#isRaw = false;
    process.off("exit", this.#leave);
    process.stdin.setRawMode(false);
  }
}

export function forwardResizes(child: ExecProcess): () => void {
  const onResize = () => {
    const size = localTerminalSize();
    // Ignored: the server may not support resize, or the process may have just exited.
    if (size) child.resize(size).catch(() => undefined);
  };
  process.stdout.on("resize", onResize);
  return () => process.stdout.off("resize", onResize);
}

/** Calls back with each of these signals until the function that is returned is called. */
export function onSignals<S extends NodeJS.Signals>(
  names: readonly S[],
  listener: (signal: S) => void,
): () => void {
  const listeners = names.map((signal) => [signal, () => listener(signal)] as const);
  for (const [signal, heard] of listeners) process.on(signal, heard);
  return () => {
    for (const [signal, heard] of listeners) process.off(signal, heard);
  };
}
