import type { Writable } from "node:stream";
import type { ExecProcess, ExitStatus, OutputChunk } from "../../exec/exec-process.ts";
import type { QueryGate, QueryStripper } from "../../exec/terminal/terminal-queries.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { writeErrorText } from "./broken-pipe.ts";

export interface ShowOptions {
  /** Filter applied before output is written. */
  filter?: QueryStripper | QueryGate | null | undefined;
  /** Called for evicted output. `bytes` is null if the size of the gap is unknown. */
  onGap?: (bytes: number | null) => void;
}

/** Writes all output until the process closes. Resolves to null if the reader closes the pipe, as `| head` does. */
export async function showOutput(
  child: ExecProcess,
  { filter = null, onGap }: ShowOptions = {},
): Promise<ExitStatus | null> {
  const output = new ProcessOutput();
  let status: ExitStatus | null = null;
  for await (const event of child.events({ lossless: true })) {
    switch (event.type) {
      case "output": {
        const chunk = filter ? await filter.push(event.chunk, event.seq) : event.chunk;
        if (!(await output.write({ stream: event.stream, chunk }))) return null;
        break;
      }
      case "gap":
        if (event.bytes !== 0) onGap?.(event.bytes);
        break;
      case "exited":
        status = event;
        break;
      case "failed":
        throw event.error;
      case "closed":
        break;
    }
  }
  if (filter) await output.write({ stream: "stdout", chunk: filter.flush() });
  await output.flush();
  if (!status) throw new Error("the process ended without an exit status");
  return status;
}

export function gapMessage(bytes: number | null): string {
  return `${bytes === null ? "some" : `${bytes} bytes of`} output missed: no longer retained`;
}

/** Stdout and stderr with backpressure. */
export class ProcessOutput {
  // Opened on first use, because Node's streams take a tenth of the time of a short command.
  #stdout: OutputPipe | null = null;
  #stderr: OutputPipe | null = null;

  /** Resolves to false when the reader closed the pipe. */
  write({ stream, chunk }: Pick<OutputChunk, "stream" | "chunk">): Promise<boolean> {
    if (stream === "stderr") this.#stderr ??= new OutputPipe(process.stderr);
    else this.#stdout ??= new OutputPipe(process.stdout);
    return (stream === "stderr" ? this.#stderr : this.#stdout)?.write(chunk) ?? Promise.resolve(true);
  }

  async flush(): Promise<void> {
    await Promise.all([this.#stdout?.flush(), this.#stderr?.flush()]);
  }
}

/** Stdout or stderr with backpressure. */
export class OutputPipe {
  readonly #stream: Writable;
  #isBroken = false;
  #waiting: (() => void) | null = null;

  constructor(stream: Writable) {
    this.#stream = stream;
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (!this.#isBroken && error.code !== "EPIPE" && stream !== process.stderr)
        standardStream(2).write(`procwire: ${writeErrorText("stdout", error)}\n`);
      this.#isBroken = true;
      this.#waiting?.();
    });
    stream.on("drain", () => this.#waiting?.());
  }

  /** Resolves when the stream accepts more; to false if the reader closed the pipe. */
  async write(chunk: Uint8Array): Promise<boolean> {
    if (this.#isBroken) return false;
    if (!this.#stream.write(chunk))
      await new Promise<void>((resolve) => {
        this.#waiting = resolve;
      });
    return !this.#isBroken;
  }

  flush(): Promise<void> {
    if (this.#isBroken) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiting = resolve;
      this.#stream.write("", () => resolve());
    });
  }
}
