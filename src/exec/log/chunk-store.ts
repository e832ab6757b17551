import type { Gap, OutputChunk } from "../exec-process.ts";

/**
 * Number of evicted chunks whose stream offset is remembered (8 bytes each), so that the size of a gap is known for
 * any recent cursor. For an older cursor the gap counts from the oldest remembered offset, or from the beginning if
 * the cursor never read.
 */
const REMEMBERED_EVICTIONS = 16_384;

/** The retained output of one process: a queue of chunks with their stream offsets. */
export class ChunkStore {
  #chunks: (OutputChunk | undefined)[] = [];
  /** End offset of each chunk in `#chunks`, in bytes since the beginning. */
  #ends: number[] = [];
  /** Arrival time of each chunk in `#chunks`. */
  #times: number[] = [];
  #first = 0;
  /** Last evicted sequence number; 0 if nothing was evicted. */
  evictedThroughSeq = 0;
  #evictedBytes = 0;
  /** Bytes of output so far, including gaps of known size. */
  totalBytes = 0;
  retainedBytes = 0;
  /** Sequence numbers of evicted chunks; `#evictedEnds` has their end offsets. */
  #evictedSeqs: number[] = [];
  #evictedEnds: number[] = [];
  /** Stream offset before the oldest remembered chunk. */
  #rememberedFrom = 0;
  /** Gaps by the empty entry that represents them in `#chunks`: output that never arrived. */
  #gaps = new Map<OutputChunk, Gap>();
  /** Last sequence number of an evicted gap of unknown size. */
  #unknownSizeThroughSeq = 0;

  push(chunk: OutputChunk, atMs: number): void {
    this.#pushEntry(chunk, chunk.chunk.length, atMs);
  }

  /** Queues an empty entry for sequence numbers whose output never arrived. */
  pushGap(gap: Gap, atMs: number): void {
    const entry: OutputChunk = { seq: gap.toSeq, stream: "stdout", chunk: NOTHING };
    this.#gaps.set(entry, gap);
    // The bytes of the gap count toward the stream offset, so that they are still counted after its eviction.
    this.#pushEntry(entry, gap.bytes ?? 0, atMs);
  }

  get hasGaps(): boolean {
    return this.#gaps.size > 0;
  }

  /** Returns the gap that an entry represents, or null for real output. */
  gapAt(entry: OutputChunk): Gap | null {
    return this.#gaps.get(entry) ?? null;
  }

  get count(): number {
    return this.#chunks.length - this.#first;
  }

  first(): OutputChunk | null {
    return this.#chunks[this.#first] ?? null;
  }

  firstAfter(seq: number): OutputChunk | null {
    return this.#chunks[this.#indexAfter(seq)] ?? null;
  }

  /** Returns whole chunks after `seq`: at least one if there is any, then as many as fit into `maxBytes`. */
  after(seq: number, maxBytes = Number.POSITIVE_INFINITY): OutputChunk[] {
    const found: OutputChunk[] = [];
    let bytes = 0;
    for (let index = this.#indexAfter(seq); index < this.#chunks.length; index++) {
      const chunk = this.#chunks[index];
      if (!chunk) continue;
      // A gap has no bytes, so it does not count as the one chunk that a reader always gets.
      if (bytes > 0 && (bytes >= maxBytes || bytes + chunk.chunk.length > maxBytes)) break;
      found.push(chunk);
      bytes += chunk.chunk.length;
    }
    return found;
  }

  /** Returns the arrival time of a retained chunk. */
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
    if (this.#gaps.get(chunk)?.bytes === null) this.#unknownSizeThroughSeq = chunk.seq;
    this.#gaps.delete(chunk);
    this.evictedThroughSeq = chunk.seq;
    this.#evictedBytes = end;
    this.retainedBytes -= chunk.chunk.length;
    this.#evictedSeqs.push(chunk.seq);
    this.#evictedEnds.push(end);
    if (this.#evictedSeqs.length > 2 * REMEMBERED_EVICTIONS) {
      this.#rememberedFrom = this.#evictedEnds[this.#evictedEnds.length - REMEMBERED_EVICTIONS - 1] ?? 0;
      this.#evictedSeqs = this.#evictedSeqs.slice(-REMEMBERED_EVICTIONS);
      this.#evictedEnds = this.#evictedEnds.slice(-REMEMBERED_EVICTIONS);
    }
    // Compacts rarely: removing the first element each time would move the whole array.
    if (this.#first > 1024 && this.#first * 2 > this.#chunks.length) {
      this.#chunks = this.#chunks.slice(this.#first);
      this.#ends = this.#ends.slice(this.#first);
      this.#times = this.#times.slice(this.#first);
      this.#first = 0;
    }
    return chunk.chunk.length;
  }

  /** Drops all chunks without remembering their offsets; returns the freed bytes. */
  clear(): number {
    const bytes = this.retainedBytes;
    this.retainedBytes = 0;
    this.#chunks = [];
    this.#ends = [];
    this.#times = [];
    this.#first = 0;
    this.#gaps.clear();
    this.#evictedBytes = this.totalBytes;
    return bytes;
  }

  /** Returns the bytes of output up to and including `seq`. */
  offsetAt(seq: number): number {
    if (seq <= 0) return 0;
    if (seq <= this.evictedThroughSeq) return this.#evictedBytes - this.evictedBytesAfter(seq);
    const index = this.#indexAfter(seq);
    return index === this.#first ? this.#evictedBytes : (this.#ends[index - 1] ?? this.totalBytes);
  }

  /** Returns the bytes evicted after `seq` through `toSeq`, or null if the size is unknown. */
  evictedBytesThrough(seq: number, toSeq: number): number | null {
    if (seq < this.#unknownSizeThroughSeq && this.#unknownSizeThroughSeq <= toSeq) return null;
    return this.evictedBytesAfter(seq) - this.evictedBytesAfter(toSeq);
  }

  /** Returns the bytes evicted after `seq`, without gaps of unknown size. */
  evictedBytesAfter(seq: number): number {
    if (seq >= this.evictedThroughSeq) return 0;
    if (seq <= 0) return this.#evictedBytes;
    const index = upperBound(this.#evictedSeqs, seq);
    return this.#evictedBytes - (index === 0 ? this.#rememberedFrom : (this.#evictedEnds[index - 1] ?? 0));
  }

  #pushEntry(entry: OutputChunk, streamBytes: number, atMs: number): void {
    this.totalBytes += streamBytes;
    this.retainedBytes += entry.chunk.length;
    this.#chunks.push(entry);
    this.#ends.push(this.totalBytes);
    this.#times.push(atMs);
  }

  #indexAfter(seq: number): number {
    // Most readers are at the end, so check the end before the search.
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

/** Returns the first index whose value is greater than `value` in a sorted array. */
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
