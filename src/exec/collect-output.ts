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
  const given = new AbortController();
  const feeding = feed(process, options.input);
  // A process that never sees the end of its input may never end.
  feeding.catch(() => given.abort());
  for await (const event of process.events({ lossless: true, signal: given.signal })) {
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
  // Who has ended takes no more input, and that is no failure.
  if (!exit) await feeding;
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
  // Asked for at once: one that cannot be closed is refused before anything waits for its end.
  const writing = bytes.length > 0 ? process.write(bytes) : null;
  await Promise.all([writing, process.closeStdin()]);
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
