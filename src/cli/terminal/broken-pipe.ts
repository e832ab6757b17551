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
  for (const name of ["stdout", "stderr"] as const) onFirstUse(name, exitOnError);
}

function exitOnError(name: "stdout" | "stderr", stream: NodeJS.WriteStream): void {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (stream.listenerCount("error") > 1) return;
    if (error.code === "EPIPE") process.exit(128 + process.getBuiltinModule("node:os").constants.signals.SIGPIPE);
    if (name === "stdout") process.stderr.write(`${commandName}: ${writeErrorText(name, error)}\n`);
    process.exit(1);
  });
}

/** Calls `use` when a program first reads `process.stdout` or `process.stderr`, which loads Node's streams. */
function onFirstUse<N extends "stdout" | "stderr">(name: N, use: (name: N, stream: NodeJS.WriteStream) => void): void {
  const original = Object.getOwnPropertyDescriptor(process, name);
  if (original?.get === undefined) {
    use(name, process[name]);
    return;
  }
  const { get } = original;
  Object.defineProperty(process, name, {
    ...original,
    get() {
      Object.defineProperty(process, name, original);
      const stream: NodeJS.WriteStream = get.call(process);
      use(name, stream);
      return stream;
    },
  });
}

export function writeErrorText(name: string, { code, message }: NodeJS.ErrnoException): string {
  return `cannot write to ${name}: ${code === "ENOSPC" ? "no space left on device (ENOSPC)" : message}`;
}
