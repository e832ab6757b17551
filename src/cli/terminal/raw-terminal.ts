import type { ExecProcess, TerminalSize } from "../../exec/exec-process.ts";

/** Returns the size of the local terminal, or null if stdout is not a terminal. */
export function localTerminalSize(): TerminalSize | null {
  const { rows, columns } = process.stdout;
  return process.stdout.isTTY && rows > 0 && columns > 0 ? { rows, cols: columns } : null;
}

/**
 * Puts the local terminal into raw mode, which passes every key to the process instead of acting on it. Returns a function
 * that restores the terminal.
 */
export function enterRawMode(): () => void {
  if (!process.stdin.isTTY) return () => undefined;
  const leave = () => {
    process.off("exit", leave);
    process.stdin.setRawMode(false);
  };
  process.stdin.setRawMode(true);
  // Restores the terminal also if this program exits without calling `leave`.
  process.once("exit", leave);
  return leave;
}

/** Sends each new size of the local terminal to the process. Returns a function that stops this. */
export function forwardResizes(child: ExecProcess): () => void {
  const onResize = () => {
    const size = localTerminalSize();
    // Ignored: the server may not support resize, or the process may have just exited.
    if (size) child.resize(size).catch(() => undefined);
  };
  process.stdout.on("resize", onResize);
  return () => process.stdout.off("resize", onResize);
}

/** Listens to these signals. Returns a function that stops this. */
export function onSignals<S extends NodeJS.Signals>(names: readonly S[], listener: (signal: S) => void): () => void {
  const listeners = names.map((signal) => [signal, () => listener(signal)] as const);
  for (const [signal, handler] of listeners) process.on(signal, handler);
  return () => {
    for (const [signal, handler] of listeners) process.off(signal, handler);
  };
}
