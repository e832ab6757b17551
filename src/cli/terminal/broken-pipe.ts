import { constants } from "node:os";

/** Command named in the error message: the one started last (`help NAME` starts two). */
let lastSpeaker: string | null = null;

/**
 * Exits when stdout or stderr fails and has no other error listener: silently if the reader closed the pipe, as `| head`
 * does, otherwise with an error message.
 */
export function exitOnBrokenPipe(speaker: string): void {
  const isListening = lastSpeaker !== null;
  lastSpeaker = speaker;
  // A second listener would treat the first one as an error handler of the stream.
  if (isListening) return;
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (stream.listenerCount("error") > 1) return;
      if (error.code === "EPIPE") process.exit(128 + constants.signals.SIGPIPE);
      const name = stream === process.stdout ? "stdout" : "stderr";
      if (stream === process.stdout) process.stderr.write(`${lastSpeaker}: ${writeErrorText(name, error)}\n`);
      process.exit(1);
    });
  }
}

export function writeErrorText(name: string, { code, message }: NodeJS.ErrnoException): string {
  return `cannot write to ${name}: ${code === "ENOSPC" ? "no space left on device (ENOSPC)" : message}`;
}
