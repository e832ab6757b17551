import type { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ExecProcess } from "../../exec/exec-process.ts";
import { type StreamOptions, streamBytes } from "../../exec/run/stream-bytes.ts";

export interface PipeOptions extends StreamOptions {
  /** Ends the target after the last byte. Default: true. */
  end?: boolean | undefined;
}

/** Where output can go: a stream of Node, a stream of the web, or the stdin of another process. */
export type PipeTarget = Writable | WritableStream<Uint8Array> | ExecProcess;

/**
 * Carries one stream of a process into `target`, as fast as that takes it. Resolves after the last byte, or when the other
 * process takes no more input; rejects as the target does, or with the reason of an abort.
 */
export async function pipeOutput(
  { process, readable }: { process: ExecProcess; readable: () => Readable },
  target: PipeTarget,
  options: PipeOptions,
): Promise<void> {
  const { signal, end = true } = options;
  signal?.throwIfAborted();
  try {
    if ("closeStdin" in target) await pipeToProcess(process, target, options);
    else if ("getWriter" in target) await pipeToWeb(process, target, options);
    else await pipeline(readable(), target, { end });
  } catch (error) {
    // Streams tell an abort in ways of their own.
    signal?.throwIfAborted();
    throw error;
  }
}

async function pipeToProcess(source: ExecProcess, target: ExecProcess, options: PipeOptions): Promise<void> {
  const { end = true } = options;
  // A source may never end: what must be refused after its last byte is refused before the first.
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
  options: PipeOptions,
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
