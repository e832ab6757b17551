import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { CallOptions, ExecProcess, ExitStatus, OutputStream } from "../exec-process.ts";
import { failureError } from "../failure.ts";

/** What is kept of each stream when nobody says how much. */
export const DEFAULT_MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/** What a process wrote, as text or as bytes. */
export interface CollectedOutput<Output = string> {
  /** A terminal's output is all here. */
  stdout: Output;
  stderr: Output;
  /** A stream was longer than `maxBytes`; the rest was let go. */
  truncated: boolean;
}

export interface CollectOptions extends CallOptions {
  input?: string | Uint8Array | undefined;
  /** Per stream; what is beyond is left out and told by `truncated`. Default 16 MiB. */
  maxBytes?: number | undefined;
}

/** Feeds a process, closes its stdin, and gathers what it writes until it is closed. Nothing is skipped meanwhile. */
export async function collectOutput(
  process: ExecProcess,
  options: CollectOptions = {},
): Promise<CollectedOutput<Uint8Array> & { exit: ExitStatus }> {
  const maxBytes = options.maxBytes ?? DEFAULT_MAX_OUTPUT_BYTES;
  const stdout = new StreamBytes(maxBytes);
  const stderr = new StreamBytes(maxBytes);
  const streamOf = (stream: OutputStream) => (stream === "stderr" ? stderr : stdout);
  let exit: ExitStatus | null = null;
  const given = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, given.signal]) : given.signal;
  feed(process, options.input).catch(async (error: unknown) => {
    // A process that has ended takes no more input, and that is no failure. Another may never end without all of it.
    const { exited } = await process.read({ maxBytes: 0 }).catch(() => ({ exited: false }));
    if (!exited) given.abort(error);
  });
  for await (const event of process.events({ lossless: true, signal })) {
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
  if (!exit) throw new ExecServerError(`process ${process.processId} ended without an exit status`, "FAILED");
  return {
    stdout: stdout.bytes(),
    stderr: stderr.bytes(),
    truncated: stdout.truncated || stderr.truncated,
    exit,
  };
}

/** The same as text; a character that `maxBytes` cut in two is shown as unknown. */
export function asText<Rest>(
  collected: CollectedOutput<Uint8Array> & Rest,
): CollectedOutput & Omit<Rest, "stdout" | "stderr"> {
  const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { ...collected, stdout: decode(collected.stdout), stderr: decode(collected.stderr) };
}

async function feed(process: ExecProcess, input: string | Uint8Array | undefined): Promise<void> {
  if (input === undefined) return;
  const bytes = typeof input === "string" ? new TextEncoder().encode(input) : input;
  // Asked for at once: one that cannot be closed is refused before anything waits for its end.
  const writing = bytes.length > 0 ? process.write(bytes) : null;
  await Promise.all([writing, process.closeStdin()]);
}

/** The beginning of a stream, up to so many bytes. */
class StreamBytes {
  truncated = false;
  readonly #parts: Uint8Array[] = [];
  #room: number;
  #length = 0;

  constructor(maxBytes: number) {
    this.#room = maxBytes;
  }

  push(chunk: Uint8Array): void {
    if (chunk.length > this.#room) this.truncated = true;
    const kept = chunk.subarray(0, this.#room);
    this.#room -= kept.length;
    this.#length += kept.length;
    if (kept.length > 0) this.#parts.push(kept);
  }

  bytes(): Uint8Array {
    const all = new Uint8Array(this.#length);
    let at = 0;
    for (const part of this.#parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}
