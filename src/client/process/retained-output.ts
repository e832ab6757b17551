import type { OutputChunk } from "../../exec/exec-process.ts";
import type { AttachedProcess } from "./attached-process.ts";

/** A piece of output and when it came, in milliseconds since the process began. */
export interface TimedChunk extends OutputChunk {
  atMs: number;
}

export interface History {
  chunks: TimedChunk[];
  /** How long ago the process began. */
  ageMs: number;
  /** The last event that was looked at. */
  throughSeq: number;
  /** How much is no longer there; null when nobody knows. */
  missedBytes: number | null;
}

/** An answer of this size is neither late nor a burden. */
const PAGE_BYTES = 256 * 1024;

/** The output that a process had written when it was attached to, or before `endSeq`, as far as its server still has it. */
export async function readHistory(child: AttachedProcess, endSeq = child.nextSeq): Promise<History> {
  const history: History = { chunks: [], ageMs: 0, throughSeq: 0, missedBytes: 0 };
  for (;;) {
    const page = await child.read({ afterSeq: history.throughSeq, maxBytes: PAGE_BYTES, times: true });
    const { chunks, times = [], ageMs = 0, gap, nextSeq } = page;
    history.chunks.push(...chunks.map((chunk, index) => ({ ...chunk, atMs: times[index] ?? 0 })));
    history.ageMs = ageMs;
    history.throughSeq = nextSeq - 1;
    if (gap)
      history.missedBytes =
        history.missedBytes === null || gap.bytes === null ? null : history.missedBytes + gap.bytes;
    if (chunks.length === 0 || nextSeq >= endSeq) return history;
  }
}
