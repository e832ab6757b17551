import { openSync } from "node:fs";
import { ReadStream, WriteStream } from "node:tty";

/** The controlling terminal of the calling process. */
const PATH = "/dev/tty";

export interface ControllingTerminal extends Disposable {
  /** Path by which the terminal can be opened again. */
  terminalPath: string;
  input: ReadStream;
  output: WriteStream;
}

/**
 * Opens the controlling terminal, independent of stdin and stdout, so that a user can answer prompts there. Returns null if
 * there is none.
 */
export function openControllingTerminal(): ControllingTerminal | null {
  const fd = openOrNull();
  if (fd === null) return null;
  // Each stream closes its own descriptor.
  const input = new ReadStream(fd);
  const output = new WriteStream(openSync(PATH, "w"));
  return {
    terminalPath: PATH,
    input,
    output,
    [Symbol.dispose]() {
      input.destroy();
      output.destroy();
    },
  };
}

function openOrNull(): number | null {
  try {
    return openSync(PATH, "r");
  } catch {
    return null;
  }
}
