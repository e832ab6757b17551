import type { OutputChunk } from "../../exec/exec-process.ts";
import type { AttachedProcess } from "./attached-process.ts";

/** A chunk with its arrival time, in milliseconds since the start of the process. */
export interface TimedChunk extends OutputChunk {
  atMs: number;
}

export interface RetainedOutput {
  chunks: TimedChunk[];
  /** Milliseconds since the start of the process. */
  ageMs: number;
  /** Sequence number of the last event that was read. */
  throughSeq: number;
  /** Bytes that are no longer retained; null if unknown. */
  missedBytes: number | null;
}

/** Page size: large enough for few round trips, small enough not to delay other messages. */
const PAGE_BYTES = 256 * 1024;

/** Reads the retained output from before the attachment, or from before `endSeq`. */
export async function readRetainedOutput(child: AttachedProcess, endSeq = child.nextSeq): Promise<RetainedOutput> {
  const history: RetainedOutput = { chunks: [], ageMs: 0, throughSeq: 0, missedBytes: 0 };
  for (;;) {
    const page = await child.read({ afterSeq: history.throughSeq, maxBytes: PAGE_BYTES, times: true });
    const { chunks, times = [], ageMs = 0, gap, nextSeq } = page;
    history.chunks.push(...chunks.map((chunk, index) => ({ ...chunk, atMs: times[index] ?? 0 })));
    history.ageMs = ageMs;
    history.throughSeq = nextSeq - 1;
    if (gap)
      history.missedBytes = history.missedBytes === null || gap.bytes === null ? null : history.missedBytes + gap.bytes;
    if (chunks.length === 0 || nextSeq >= endSeq) return history;
  }
}
