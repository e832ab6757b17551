import type { Gap, OutputChunk } from "../exec-process.ts";

/**
 * How many evicted chunks are remembered by their place in the stream, so that a gap can be counted from any recent
 * cursor (8 bytes each). A cursor older than that has its gap counted from the oldest place remembered, or from the
 * beginning when it never read at all.
 */
const REMEMBERED_EVICTIONS = 16_384;

/** The retained output of one process: a queue of chunks with their place in the stream. */
export class ChunkStore {
  #chunks: (OutputChunk | undefined)[] = [];
  /** Offset of the end of each chunk in `#chunks`, in bytes since the beginning. */
  #ends: number[] = [];
  /** When each chunk in `#chunks` came. */
  #times: number[] = [];
  #first = 0;
  #evictedThroughSeq = 0;
  #evictedBytes = 0;
  #totalBytes = 0;
  #retainedBytes = 0;
  /** Places of evicted chunks: their seq, and the offset where they ended. */
  #evictedSeqs: number[] = [];
  #evictedEnds: number[] = [];
  /** Offset before the oldest place remembered. */
  #rememberedFrom = 0;
  /** Output that never came here, by the entry without bytes that stands for it in `#chunks`. */
  #holes = new Map<OutputChunk, Gap>();
  /** The last number of an evicted hole whose size nobody knows. */
  #unknownThroughSeq = 0;

  push(chunk: OutputChunk, atMs: number): void {
    this.#place(chunk, chunk.chunk.length, atMs);
  }

  /** Numbers whose output never came here; they stand in the queue like a chunk without bytes. */
  pushHole(gap: Gap, atMs: number): void {
    const entry: OutputChunk = { seq: gap.toSeq, stream: "stdout", chunk: NOTHING };
    this.#holes.set(entry, gap);
    // Its bytes have their place in the stream, so that they are still counted once the hole itself is evicted.
    this.#place(entry, gap.bytes ?? 0, atMs);
  }

  get hasHoles(): boolean {
    return this.#holes.size > 0;
  }

  /** The hole an entry of this queue stands for, or null for real output. */
  holeAt(entry: OutputChunk): Gap | null {
    return this.#holes.get(entry) ?? null;
  }

  get count(): number {
    return this.#chunks.length - this.#first;
  }

  /** Bytes of output so far, also of what never came here. */
  get totalBytes(): number {
    return this.#totalBytes;
  }

  get retainedBytes(): number {
    return this.#retainedBytes;
  }

  /** Every chunk up to this seq is gone; 0 when none is. */
  get evictedThroughSeq(): number {
    return this.#evictedThroughSeq;
  }

  first(): OutputChunk | null {
    return this.#chunks[this.#first] ?? null;
  }

  firstAfter(seq: number): OutputChunk | null {
    return this.#chunks[this.#indexAfter(seq)] ?? null;
  }

  /** Whole chunks after `seq`; at least one when there is any, then as many as fit into `maxBytes`. */
  after(seq: number, maxBytes = Number.POSITIVE_INFINITY): OutputChunk[] {
    const found: OutputChunk[] = [];
    let bytes = 0;
    for (let index = this.#indexAfter(seq); index < this.#chunks.length; index++) {
      const chunk = this.#chunks[index];
      if (!chunk) continue;
      // A hole has no bytes and is not what a reader who wants at least one chunk asked for.
      if (bytes > 0 && (bytes >= maxBytes || bytes + chunk.chunk.length > maxBytes)) break;
      found.push(chunk);
      bytes += chunk.chunk.length;
    }
    return found;
  }

  /** When a chunk that is still here came. */
  timeOf(seq: number): number {
    return this.#times[this.#indexAfter(seq - 1)] ?? 0;
  }

  /** Drops the oldest chunk and returns its size. */
  evictFirst(): number {
    const chunk = this.#chunks[this.#first];
    const end = this.#ends[this.#first];
    if (!chunk || end === undefined) return 0;
    this.#chunks[this.#first] = undefined;
    this.#first++;
    if (this.#holes.get(chunk)?.bytes === null) this.#unknownThroughSeq = chunk.seq;
    this.#holes.delete(chunk);
    this.#evictedThroughSeq = chunk.seq;
    this.#evictedBytes = end;
    this.#retainedBytes -= chunk.chunk.length;
    this.#evictedSeqs.push(chunk.seq);
    this.#evictedEnds.push(end);
    if (this.#evictedSeqs.length > 2 * REMEMBERED_EVICTIONS) {
      this.#rememberedFrom = this.#evictedEnds[this.#evictedEnds.length - REMEMBERED_EVICTIONS - 1] ?? 0;
      this.#evictedSeqs = this.#evictedSeqs.slice(-REMEMBERED_EVICTIONS);
      this.#evictedEnds = this.#evictedEnds.slice(-REMEMBERED_EVICTIONS);
    }
    // Shift rarely: an array that loses its front one by one would be moved each time.
    if (this.#first > 1024 && this.#first * 2 > this.#chunks.length) {
      this.#chunks = this.#chunks.slice(this.#first);
      this.#ends = this.#ends.slice(this.#first);
      this.#times = this.#times.slice(this.#first);
      this.#first = 0;
    }
    return chunk.chunk.length;
  }

  /** Drops everything without remembering it; returns the bytes given back. */
  clear(): number {
    const bytes = this.#retainedBytes;
    this.#retainedBytes = 0;
    this.#chunks = [];
    this.#ends = [];
    this.#times = [];
    this.#first = 0;
    this.#holes.clear();
    this.#evictedBytes = this.#totalBytes;
    return bytes;
  }

  /** Bytes of output up to and including `seq`. */
  offsetAt(seq: number): number {
    if (seq <= 0) return 0;
    if (seq <= this.#evictedThroughSeq) return this.#evictedBytes - this.evictedBytesAfter(seq);
    const index = this.#indexAfter(seq);
    return index === this.#first ? this.#evictedBytes : (this.#ends[index - 1] ?? this.#totalBytes);
  }

  /** What is gone after `seq`, through `toSeq`; null when nobody knows how much. */
  goneBytes(seq: number, toSeq: number): number | null {
    if (seq < this.#unknownThroughSeq && this.#unknownThroughSeq <= toSeq) return null;
    return this.evictedBytesAfter(seq) - this.evictedBytesAfter(toSeq);
  }

  /** Bytes that were evicted after `seq`, as far as they are known. */
  evictedBytesAfter(seq: number): number {
    if (seq >= this.#evictedThroughSeq) return 0;
    if (seq <= 0) return this.#evictedBytes;
    const index = upperBound(this.#evictedSeqs, seq);
    return this.#evictedBytes - (index === 0 ? this.#rememberedFrom : (this.#evictedEnds[index - 1] ?? 0));
  }

  #place(entry: OutputChunk, streamBytes: number, atMs: number): void {
    this.#totalBytes += streamBytes;
    this.#retainedBytes += entry.chunk.length;
    this.#chunks.push(entry);
    this.#ends.push(this.#totalBytes);
    this.#times.push(atMs);
  }

  #indexAfter(seq: number): number {
    // The usual consumer stands at the end or at the beginning; look there before searching.
    const last = this.#chunks[this.#chunks.length - 1];
    if (!last || last.seq <= seq) return this.#chunks.length;
    let low = this.#first;
    let high = this.#chunks.length - 1;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const chunk = this.#chunks[middle];
      if (chunk && chunk.seq > seq) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

const NOTHING = new Uint8Array(0);

/** The first index whose value is greater than `value`, in a sorted array. */
function upperBound(sorted: readonly number[], value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle] ?? 0) > value) high = middle;
    else low = middle + 1;
  }
  return low;
}
