import { constants } from "node:os";

/**
 * Ends the program when its stdout or stderr cannot be written and nobody else looks after that: without a word where the
 * reader has closed the pipe, as `| head` does, else with what is wrong.
 */
export function endOnBrokenOutput(speaker: string): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (stream.listenerCount("error") > 1) return;
      if (error.code === "EPIPE") process.exit(128 + constants.signals.SIGPIPE);
      const name = stream === process.stdout ? "stdout" : "stderr";
      if (stream === process.stdout) process.stderr.write(`${speaker}: ${unwritable(name, error)}\n`);
      process.exit(1);
    });
  }
}

export function unwritable(name: string, { code, message }: NodeJS.ErrnoException): string {
  return `cannot write to ${name}: ${code === "ENOSPC" ? "no space left on device (ENOSPC)" : message}`;
}
