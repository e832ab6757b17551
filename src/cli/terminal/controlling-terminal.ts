import { openSync } from "node:fs";
import { ReadStream, WriteStream } from "node:tty";

/** The controlling terminal of whoever opens it. */
const PATH = "/dev/tty";

export interface Terminal extends Disposable {
  /** Where it can be opened once more. */
  terminalPath: string;
  input: ReadStream;
  output: WriteStream;
}

/**
 * The terminal this program was started from, wherever its input and output go: questions are read and answered by a
 * person there. Null when there is none.
 */
export function openTerminal(): Terminal | null {
  const fd = openOrNull();
  if (fd === null) return null;
  // Each stream closes a descriptor of its own.
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
