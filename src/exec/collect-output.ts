import type { ExecProcess, ExitStatus, OutputStream } from "./exec-process.ts";
import { failureError } from "./failure.ts";

/** What is kept of each stream when nobody says how much. */
export const DEFAULT_MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

export interface OutputText {
  /** A terminal's output is all here. */
  stdout: string;
  stderr: string;
  /** A stream was longer than `maxBytes`; the rest was let go. */
  truncated: boolean;
}

export interface CollectOptions {
  input?: string | Uint8Array;
  maxBytes?: number;
  signal?: AbortSignal;
}

/** Feeds a process, closes its stdin, and gathers what it writes until it is closed. Nothing is skipped meanwhile. */
export async function collectOutput(
  process: ExecProcess,
  options: CollectOptions = {},
): Promise<OutputText & { exit: ExitStatus }> {
  const maxBytes = options.maxBytes ?? DEFAULT_MAX_OUTPUT_BYTES;
  const stdout = new StreamText(maxBytes);
  const stderr = new StreamText(maxBytes);
  const streamOf = (stream: OutputStream) => (stream === "stderr" ? stderr : stdout);
  let exit: ExitStatus | null = null;
  const feeding = feed(process, options.input);
  // Whatever goes wrong with the input is told when the process has ended.
  feeding.catch(() => undefined);
  for await (const event of process.events({ lossless: true })) {
    switch (event.type) {
      case "output":
        streamOf(event.stream).push(event.chunk);
        break;
      case "gap":
        stdout.truncated = true;
        break;
      case "exited":
        exit = event;
        break;
      case "failed":
        throw failureError(event.message);
      case "closed":
        break;
    }
  }
  await feeding;
  if (!exit) throw new Error(`process ${process.processId} ended without an exit status`);
  return {
    stdout: stdout.text(),
    stderr: stderr.text(),
    truncated: stdout.truncated || stderr.truncated,
    exit,
  };
}

async function feed(process: ExecProcess, input: string | Uint8Array | undefined): Promise<void> {
  if (input === undefined) return;
  const bytes = typeof input === "string" ? new TextEncoder().encode(input) : input;
  if (bytes.length > 0) await process.write(bytes);
  await process.closeStdin();
}

/** Text of a stream whose pieces may be cut inside of a character. */
class StreamText {
  truncated = false;
  readonly #decoder = new TextDecoder();
  readonly #parts: string[] = [];
  #room: number;

  constructor(maxBytes: number) {
    this.#room = maxBytes;
  }

  push(chunk: Uint8Array): void {
    if (chunk.length > this.#room) this.truncated = true;
    const kept = chunk.subarray(0, this.#room);
    this.#room -= kept.length;
    if (kept.length > 0) this.#parts.push(this.#decoder.decode(kept, { stream: true }));
  }

  text(): string {
    return this.#parts.join("") + this.#decoder.decode();
  }
}
