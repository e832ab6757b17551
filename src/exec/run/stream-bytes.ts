import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { CallOptions, ExecProcess, OutputStream } from "../exec-process.ts";
import { failureError } from "../failure.ts";

export interface StreamOptions extends CallOptions {
  /** Default: stdout, or the terminal's output. */
  stream?: OutputStream | undefined;
}

/** The bytes of one stream as they come, from the beginning. A slow reader holds the process back; a gap throws. */
export async function* streamBytes(
  process: ExecProcess,
  { stream, signal }: StreamOptions = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const event of process.events({ lossless: true, signal })) {
    if (event.type === "failed") throw failureError(event.message);
    if (event.type === "gap")
      throw new ExecServerError(
        `output of process ${process.processId} is no longer retained (events ${event.fromSeq} to ${event.toSeq})`,
        "GAP",
      );
    if (event.type === "output" && isWanted(event.stream, stream)) yield event.chunk;
  }
}

/** Where nobody says which: stdout, or the terminal's output. */
export function isWanted(stream: OutputStream, wanted: OutputStream | undefined): boolean {
  return wanted === undefined ? stream !== "stderr" : stream === wanted;
}
