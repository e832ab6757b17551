import { writeSync } from "node:fs";

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

/** Writes a line to a standard stream, without loading Node's stream module if possible. */
export function writeStandardLine(fd: 1 | 2, line: string): void {
  try {
    writeSync(fd, `${line}\n`);
  } catch {
    // The descriptor is full or closed. The stream waits for the reader, or drops the line.
    standardStream(fd).write(`${line}\n`);
  }
}
