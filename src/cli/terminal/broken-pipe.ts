import { constants } from "node:os";

/** Who says what is wrong: the command that was begun last (`help NAME` begins two). */
let lastSpeaker: string | null = null;

/**
 * Ends the program when its stdout or stderr cannot be written and nobody else looks after that: without a word where the
 * reader has closed the pipe, as `| head` does, else with what is wrong.
 */
export function endOnBrokenOutput(speaker: string): void {
  const isListening = lastSpeaker !== null;
  lastSpeaker = speaker;
  // A second listener would take the first for somebody who looks after the stream.
  if (isListening) return;
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (stream.listenerCount("error") > 1) return;
      if (error.code === "EPIPE") process.exit(128 + constants.signals.SIGPIPE);
      const name = stream === process.stdout ? "stdout" : "stderr";
      if (stream === process.stdout) process.stderr.write(`${lastSpeaker}: ${unwritable(name, error)}\n`);
      process.exit(1);
    });
  }
}

export function unwritable(name: string, { code, message }: NodeJS.ErrnoException): string {
  return `cannot write to ${name}: ${code === "ENOSPC" ? "no space left on device (ENOSPC)" : message}`;
}
