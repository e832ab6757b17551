import type { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ExecProcess } from "../../exec/exec-process.ts";
import { type StreamOptions, streamBytes } from "../../exec/run/stream-bytes.ts";

export interface PipeOutputOptions extends StreamOptions {
  /** Ends the target after the last byte. Default: true. */
  end?: boolean | undefined;
}

/** Target of output: a Node stream, a web stream, or the stdin of a process. */
export type PipeTarget = Writable | WritableStream<Uint8Array> | ExecProcess;

/**
 * Copies one stream of a process to `target`, with backpressure. Resolves after the last byte, or when the target
 * process accepts no more input. Rejects as the target does, or with the signal's reason.
 */
export async function pipeOutput(
  { process, readable }: { process: ExecProcess; readable: () => Readable },
  target: PipeTarget,
  options: PipeOutputOptions,
): Promise<void> {
  const { signal, end = true } = options;
  signal?.throwIfAborted();
  try {
    if ("closeStdin" in target) await pipeToProcess(process, target, options);
    else if ("getWriter" in target) await pipeToWeb(process, target, options);
    else await pipeline(readable(), target, { end });
  } catch (error) {
    // Streams report an abort differently; the caller gets the signal's reason.
    signal?.throwIfAborted();
    throw error;
  }
}

async function pipeToProcess(source: ExecProcess, target: ExecProcess, options: PipeOutputOptions): Promise<void> {
  const { end = true } = options;
  // A source may never end, so an unsupported close of stdin is rejected before the first byte.
  if (end && target.canCloseStdin === false) await target.closeStdin();
  for await (const chunk of streamBytes(source, options)) {
    const { status } = await target.write(chunk, { signal: options.signal });
    if (status !== "accepted") return;
  }
  if (end) await target.closeStdin();
}

async function pipeToWeb(
  source: ExecProcess,
  target: WritableStream<Uint8Array>,
  options: PipeOutputOptions,
): Promise<void> {
  const writer = target.getWriter();
  try {
    for await (const chunk of streamBytes(source, options)) {
      await writer.ready;
      await writer.write(chunk);
    }
    if (options.end ?? true) await writer.close();
  } catch (error) {
    await writer.abort(error).catch(() => undefined);
    throw error;
  } finally {
    writer.releaseLock();
  }
}
