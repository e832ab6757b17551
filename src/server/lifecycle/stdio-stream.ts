import { fstatSync, writeSync } from "node:fs";

const streamsWithListener = new WeakSet<NodeJS.WriteStream>();

/** Returns stdout or stderr with an error listener. Without one, a closed reader would end the program. */
export function standardStream(fd: 1 | 2): NodeJS.WriteStream {
  const stream = fd === 1 ? process.stdout : process.stderr;
  if (!streamsWithListener.has(stream)) {
    streamsWithListener.add(stream);
    stream.on("error", () => undefined);
  }
  return stream;
}

/**
 * Writes a line to a standard stream, without loading Node's stream module if possible. No-op after the reader closed the
 * stream.
 */
export function writeStandardLine(fd: 1 | 2, line: string): void {
  writeStandard(fd, `${line}\n`, () => standardStream(fd));
}

/** Writes text to stdout, without loading Node's stream module if possible. */
export function writeStandardOutput(text: string): void {
  writeStandard(1, text, () => process.stdout);
}

function writeStandard(fd: 1 | 2, text: string, openStream: () => NodeJS.WriteStream): void {
  let rest: Uint8Array = Buffer.from(text);
  try {
    while (rest.length > 0) rest = rest.subarray(writeSync(fd, rest));
  } catch {
    // The descriptor is full or closed. The stream waits for the reader, or reports the error.
    openStream().write(rest);
  }
}

/** Returns the columns of the terminal at stdout; null without a terminal, or if its size is unknown. */
export function outputColumns(): number | null {
  // Reading `process.stdout` loads Node's stream module. A terminal without a size reports 0 columns.
  return (fstatSync(1).isCharacterDevice() && process.stdout.columns) || null;
}
