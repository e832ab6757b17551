import { writeSync } from "node:fs";

const listened = new WeakSet<NodeJS.WriteStream>();

/**
 * This program's stdout or stderr, whose failing ends nothing: without a listener Node would end the program, and all
 * that it started, because nobody reads a line any more.
 */
export function standardStream(fd: 1 | 2): NodeJS.WriteStream {
  const stream = fd === 1 ? process.stdout : process.stderr;
  if (!listened.has(stream)) {
    listened.add(stream);
    stream.on("error", () => undefined);
  }
  return stream;
}

/** Writes a line to a standard stream; without Node's stream where that is possible, which would be loaded for it alone. */
export function writeStandardLine(fd: 1 | 2, line: string): void {
  try {
    writeSync(fd, `${line}\n`);
  } catch {
    // Nobody reads it now, or ever; the stream waits, or gives it up.
    standardStream(fd).write(`${line}\n`);
  }
}
