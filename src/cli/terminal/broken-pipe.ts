import { constants } from "node:os";

/** Name of the command in the error message: the last one, because `help NAME` starts two. */
let commandName: string | null = null;

/**
 * Exits when stdout or stderr fails and has no other error listener: silently if the reader closed the pipe, as `| head`
 * does, otherwise with an error message.
 */
export function exitOnBrokenPipe(command: string): void {
  const isListening = commandName !== null;
  commandName = command;
  // A second listener would treat the first one as an error handler of the stream.
  if (isListening) return;
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (stream.listenerCount("error") > 1) return;
      if (error.code === "EPIPE") process.exit(128 + constants.signals.SIGPIPE);
      const name = stream === process.stdout ? "stdout" : "stderr";
      if (stream === process.stdout) process.stderr.write(`${commandName}: ${writeErrorText(name, error)}\n`);
      process.exit(1);
    });
  }
}

export function writeErrorText(name: string, { code, message }: NodeJS.ErrnoException): string {
  return `cannot write to ${name}: ${code === "ENOSPC" ? "no space left on device (ENOSPC)" : message}`;
}
