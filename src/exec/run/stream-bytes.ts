import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { CallOptions, ExecProcess, OutputStream } from "../exec-process.ts";

export interface StreamOptions extends CallOptions {
  /** Default: stdout, or the terminal's output. */
  stream?: OutputStream | undefined;
}

/** Yields the bytes of one stream from the beginning. A slow reader pauses the process; a gap throws. */
export async function* streamBytes(
  process: ExecProcess,
  { stream, signal }: StreamOptions = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const event of process.events({ lossless: true, signal })) {
    if (event.type === "failed") throw event.error;
    if (event.type === "gap")
      throw new ExecServerError(
        `output of process ${process.processId} is no longer retained (events ${event.fromSeq} to ${event.toSeq})`,
        "GAP",
      );
    if (event.type === "output" && matchesStream(event.stream, stream)) yield event.chunk;
  }
}

/** Reports whether the stream is selected. Default: stdout and the terminal's output. */
export function matchesStream(stream: OutputStream, selected: OutputStream | undefined): boolean {
  return selected === undefined ? stream !== "stderr" : stream === selected;
}
