import { concatBytes } from "../../base/bytes.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { CallOptions, ExecProcess, ExitStatus } from "../exec-process.ts";
import { type InputData, toInputBytes } from "../options/input-bytes.ts";

/** Default maximum of collected bytes per stream. */
export const DEFAULT_MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/** Output of a process, as text or as bytes. */
export interface CollectedOutput<Output = string> {
  /** Includes the output of a terminal. */
  stdout: Output;
  stderr: Output;
  /** A stream was longer than `maxBytes`; the rest was discarded. */
  truncated: boolean;
}

export interface CollectOptions extends CallOptions {
  input?: InputData | undefined;
  /** Maximum bytes per stream; the rest is discarded and sets `truncated`. Default 16 MiB. */
  maxBytes?: number | undefined;
}

/** Writes the input, closes stdin and collects the output until the process is closed. Skips no output. */
export async function collectOutput(
  process: ExecProcess,
  options: CollectOptions = {},
): Promise<CollectedOutput<Uint8Array> & { exit: ExitStatus }> {
  const maxBytes = options.maxBytes ?? DEFAULT_MAX_OUTPUT_BYTES;
  const stdout = new BoundedBuffer(maxBytes);
  const stderr = new BoundedBuffer(maxBytes);
  let exit: ExitStatus | null = null;
  const failedInput = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, failedInput.signal]) : failedInput.signal;
  writeInput(process, options.input).catch(async (error: unknown) => {
    // A process that exited takes no more input; that is not a failure. A running process may wait forever for the
    // rest.
    const { exited } = await process.read({ maxBytes: 0 }).catch(() => ({ exited: false }));
    if (!exited) failedInput.abort(error);
  });
  for await (const event of process.events({ lossless: true, signal })) {
    if (event.type === "output") (event.stream === "stderr" ? stderr : stdout).push(event.chunk);
    else if (event.type === "gap") stdout.truncated = true;
    else if (event.type === "exited") exit = event;
    else if (event.type === "failed") throw event.error;
  }
  if (!exit) throw new ExecServerError(`process ${process.processId} ended without an exit status`, "FAILED");
  return {
    stdout: stdout.bytes(),
    stderr: stderr.bytes(),
    truncated: stdout.truncated || stderr.truncated,
    exit,
  };
}

/** Decodes the output as UTF-8; a character cut by `maxBytes` becomes U+FFFD. */
export function decodeOutput<Rest>(
  collected: CollectedOutput<Uint8Array> & Rest,
): CollectedOutput & Omit<Rest, "stdout" | "stderr"> {
  const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { ...collected, stdout: decode(collected.stdout), stderr: decode(collected.stderr) };
}

async function writeInput(process: ExecProcess, input: InputData | undefined): Promise<void> {
  if (input === undefined) return;
  const bytes = toInputBytes(input);
  // Does not wait for the write: a server that cannot close stdin rejects before anything waits for end of file.
  const writing = bytes.length > 0 ? process.write(bytes) : null;
  await Promise.all([writing, process.closeStdin()]);
}

/** The first `maxBytes` bytes of a stream. */
class BoundedBuffer {
  truncated = false;
  readonly #chunks: Uint8Array[] = [];
  #remaining: number;

  constructor(maxBytes: number) {
    this.#remaining = maxBytes;
  }

  push(chunk: Uint8Array): void {
    if (chunk.length > this.#remaining) this.truncated = true;
    const accepted = chunk.subarray(0, this.#remaining);
    this.#remaining -= accepted.length;
    if (accepted.length > 0) this.#chunks.push(accepted);
  }

  bytes(): Uint8Array {
    return concatBytes(this.#chunks);
  }
}
