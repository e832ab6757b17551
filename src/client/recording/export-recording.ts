import { shellQuoteAll } from "../../base/text/printable-text.ts";
import { DEFAULT_TERMINAL_SIZE } from "../../exec/exec-process.ts";
import type { AttachedProcess } from "../process/attached-process.ts";
import { type RetainedOutput, readRetainedOutput } from "../process/retained-output.ts";
import { type CastVersion, CastWriter } from "./asciicast.ts";

/** Exports a recording from the retained output of a process, with the number of missing bytes. */
export async function exportRecording(
  child: AttachedProcess,
  { input = false, version }: { input?: boolean | undefined; version?: CastVersion | undefined } = {},
): Promise<{ text: string; missedBytes: RetainedOutput["missedBytes"] }> {
  const { nextSeq, exited, exitCode } = await child.read({ afterSeq: Number.MAX_SAFE_INTEGER, times: true });
  const { chunks, missedBytes } = await readRetainedOutput(child, nextSeq);
  const { argv, startedAtMs } = child.listing();
  const lines: string[] = [];
  const firstSeq = chunks[0]?.seq ?? nextSeq;
  const writer = new CastWriter(
    {
      version,
      size: child.sizeAt(firstSeq) ?? DEFAULT_TERMINAL_SIZE,
      startedAtMs,
      command: shellQuoteAll(argv),
    },
    (line) => lines.push(line),
  );
  // The recording starts at the first retained chunk, so that playback does not wait for missing output.
  const startMs = missedBytes === 0 ? 0 : (chunks[0]?.atMs ?? 0);
  const pendingInputs = input ? (await child.inputs()).inputs.filter(({ fromMs }) => fromMs >= startMs) : [];
  const writeInputsUntil = (untilMs: number) => {
    for (let next = pendingInputs[0]; next && next.fromMs <= untilMs; next = pendingInputs[0]) {
      pendingInputs.shift();
      if (next.chunk) writer.input(next.fromMs - startMs, next.chunk);
    }
  };
  const resizes = child.sizes.changesSince(0).filter(({ afterSeq }) => afterSeq >= firstSeq && afterSeq < nextSeq);
  const writeResizesBefore = (seq: number, untilMs: number) => {
    for (let next = resizes[0]; next && next.afterSeq < seq; next = resizes[0]) {
      resizes.shift();
      const atMs = Math.min(next.atMs, untilMs);
      writeInputsUntil(atMs);
      writer.resized(atMs - startMs, next.size);
    }
  };
  for (const { seq, atMs, chunk, stream } of chunks) {
    writeResizesBefore(seq, atMs);
    writeInputsUntil(atMs);
    writer.output(atMs - startMs, stream === "pty" ? chunk : toTerminalOutput(chunk));
  }
  writeResizesBefore(nextSeq, Number.POSITIVE_INFINITY);
  writeInputsUntil(Number.POSITIVE_INFINITY);
  if (exited) writer.exited((chunks.at(-1)?.atMs ?? 0) - startMs, exitCode ?? -1);
  return { text: lines.join(""), missedBytes };
}

const [CR, LF] = [0x0d, 0x0a];

/** Inserts the carriage returns that a terminal needs; output without a terminal has none. */
function toTerminalOutput(chunk: Uint8Array): Uint8Array {
  const bytes: number[] = [];
  for (const [index, byte] of chunk.entries()) {
    if (byte === LF && chunk[index - 1] !== CR) bytes.push(CR);
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}
