import type { Gap, OutputChunk, OutputStream } from "../exec-process.ts";

/**
 * Number of evicted chunks whose stream offset is remembered (16 bytes each), so that the size of a gap is known for
 * any recent cursor. For an older cursor the gap counts from the oldest remembered offset, or from the beginning if
 * the cursor never read.
 */
const REMEMBERED_EVICTIONS = 2048;
/** Number of evicted entries at the start of the arrays above which they are removed. One at a time moves all others. */
const MAX_EVICTED_ENTRIES = 1024;

/** Chunks below this size are packed into blocks: an object per short line takes 400 bytes more. */
const MAX_PACKED_BYTES = 4096;
/** Size of the first block of packed chunks, and maximum size. Each block is twice as large as the block before. */
const FIRST_BLOCK_BYTES = 512;
const MAX_BLOCK_BYTES = 16 * 1024;
/** Memory of a chunk without its bytes, and of a remembered eviction. */
export const CHUNK_ENTRY_BYTES = 64;
const EVICTION_ENTRY_BYTES = 16;
/** Entries up to this size do not count, like the other objects of a process. */
export const UNCOUNTED_ENTRY_BYTES = 128 * CHUNK_ENTRY_BYTES;

/** Packed chunks that follow each other in the stream, without a gap. No view of `bytes` leaves the store. */
interface PackedBlock {
  bytes: Uint8Array;
  /** Stream offset of the first byte. */
  startOffset: number;
  usedBytes: number;
}

/** The retained output of one process: a queue of chunks with their stream offsets. */
export class ChunkStore {
  /** The bytes of each chunk, or the block that contains them. */
  #data: (Uint8Array | PackedBlock | undefined)[] = [];
  #seqs: number[] = [];
  #streams: OutputStream[] = [];
  /** End offset of each chunk in `#data`, in bytes since the beginning. */
  #ends: number[] = [];
  /** Arrival time of each chunk in `#data`. */
  #times: number[] = [];
  /** The block that takes the next packed chunk. */
  #open: PackedBlock | null = null;
  /** The last chunk, unpacked: most readers take it at once, and need no copy of the packed bytes. */
  #newest: OutputChunk | null = null;
  /** Chunks up to this sequence number may be in use by a reader, so the store does not free their memory. */
  #lentThroughSeq = 0;
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
  /** Gaps by the sequence number of the empty entry that represents them: output that never arrived. */
  readonly #gaps = new Map<number, Gap>();
  /** Last sequence number of an evicted gap of unknown size. */
  #unknownSizeThroughSeq = 0;

  push(chunk: OutputChunk, atMs: number): void {
    const data = chunk.chunk.length < MAX_PACKED_BYTES ? this.#pack(chunk.chunk) : chunk.chunk;
    this.#pushEntry(chunk, data, chunk.chunk.length, atMs);
    if (data !== chunk.chunk) this.#newest = chunk;
  }

  /** Queues an empty entry for sequence numbers whose output never arrived. */
  pushGap(gap: Gap, atMs: number): void {
    this.#gaps.set(gap.toSeq, gap);
    // The bytes of the gap count toward the stream offset, so that they are still counted after its eviction.
    this.#pushEntry({ seq: gap.toSeq, stream: "stdout", chunk: NOTHING }, NOTHING, gap.bytes ?? 0, atMs);
  }

  /** Returns the gap that an entry represents, or null for real output. */
  gapAt(entry: OutputChunk): Gap | null {
    return entry.chunk.length > 0 ? null : (this.#gaps.get(entry.seq) ?? null);
  }

  get count(): number {
    return this.#data.length - this.#first;
  }

  /** Memory of the retained chunks, their entries and the remembered evictions. */
  get memoryBytes(): number {
    const entryBytes = this.count * CHUNK_ENTRY_BYTES + this.#evictedSeqs.length * EVICTION_ENTRY_BYTES;
    return this.retainedBytes + Math.max(0, entryBytes - UNCOUNTED_ENTRY_BYTES);
  }

  /** Returns the oldest chunk. Its bytes are valid until the next call. */
  first(): OutputChunk | null {
    return this.#chunkAt(this.#first);
  }

  /** Returns the first chunk after `seq`. If the reader `borrows` it, its bytes are valid until the next call. */
  firstAfter(seq: number, borrows = false): OutputChunk | null {
    const chunk = this.#chunkAt(this.#indexAfter(seq));
    if (chunk && !borrows) this.lendThrough(chunk.seq);
    return chunk;
  }

  /** Returns whole chunks after `seq`: at least one if there is any, then as many as fit into `maxBytes`. */
  after(seq: number, maxBytes = Number.POSITIVE_INFINITY): OutputChunk[] {
    const found: OutputChunk[] = [];
    let bytes = 0;
    for (let index = this.#indexAfter(seq); ; index++) {
      const length = this.#lengthAt(index);
      // A gap has no bytes, so it does not count as the one chunk that a reader always gets.
      const chunk = bytes > 0 && bytes + length > maxBytes ? null : this.#chunkAt(index);
      if (!chunk) break;
      found.push(chunk);
      bytes += length;
    }
    this.lendThrough(found.at(-1)?.seq ?? 0);
    return found;
  }

  /** Leaves the memory of the chunks up to `seq` to the garbage collector, because a reader may use them for long. */
  lendThrough(seq: number): void {
    this.#lentThroughSeq = Math.max(this.#lentThroughSeq, seq);
  }

  /** Reports whether a chunk is evicted, and no reader uses it. */
  hasReleased(seq: number): boolean {
    return seq <= this.evictedThroughSeq && seq > this.#lentThroughSeq;
  }

  /** Returns the arrival time of a retained chunk. */
  timeOf(seq: number): number {
    return this.#times[this.#indexAfter(seq - 1)] ?? 0;
  }

  /** Drops the oldest chunk. Returns its memory if the caller may free it: no reader uses it. */
  evictFirst(): Uint8Array | null {
    const data = this.#data[this.#first];
    if (!data) return null;
    const length = this.#lengthAt(this.#first);
    const end = this.#ends[this.#first] ?? this.totalBytes;
    const seq = this.#seqs[this.#first] ?? 0;
    this.#data[this.#first] = undefined;
    this.#first++;
    if (this.#newest?.seq === seq) this.#newest = null;
    if (this.#gaps.get(seq)?.bytes === null) this.#unknownSizeThroughSeq = seq;
    this.#gaps.delete(seq);
    this.evictedThroughSeq = seq;
    this.#evictedBytes = end;
    this.retainedBytes -= length;
    this.#evictedSeqs.push(seq);
    this.#evictedEnds.push(end);
    if (this.#evictedSeqs.length > 2 * REMEMBERED_EVICTIONS) {
      this.#rememberedFrom = this.#evictedEnds[this.#evictedEnds.length - REMEMBERED_EVICTIONS - 1] ?? 0;
      this.#evictedSeqs = this.#evictedSeqs.slice(-REMEMBERED_EVICTIONS);
      this.#evictedEnds = this.#evictedEnds.slice(-REMEMBERED_EVICTIONS);
    }
    if (this.#first > MAX_EVICTED_ENTRIES) this.#dropEvictedEntries();
    return data instanceof Uint8Array && seq > this.#lentThroughSeq ? data : null;
  }

  /** Drops all chunks without remembering their offsets. Returns the memory that the caller may free. */
  clear(): Uint8Array[] {
    const free = this.#data.filter(
      (data, index) => data instanceof Uint8Array && (this.#seqs[index] ?? 0) > this.#lentThroughSeq,
    ) as Uint8Array[];
    this.retainedBytes = 0;
    this.#data = [];
    this.#seqs = [];
    this.#streams = [];
    this.#ends = [];
    this.#times = [];
    this.#first = 0;
    this.#open = null;
    this.#newest = null;
    this.#evictedBytes = this.totalBytes;
    return free;
  }

  /** Returns the bytes of output up to and including `seq`. */
  offsetAt(seq: number): number {
    if (seq <= 0) return 0;
    const index = this.#indexAfter(seq);
    if (index === this.#first) return this.#evictedBytes - this.evictedBytesAfter(seq);
    return this.#ends[index - 1] ?? 0;
  }

  /** Returns the retained bytes after `seq`, including gaps of known size. */
  retainedBytesAfter(seq: number): number {
    return this.totalBytes - Math.max(this.#evictedBytes, this.offsetAt(seq));
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
    const index = upperBound(this.#evictedSeqs, seq, 0);
    return this.#evictedBytes - (index === 0 ? this.#rememberedFrom : (this.#evictedEnds[index - 1] ?? 0));
  }

  #pushEntry(entry: OutputChunk, data: Uint8Array | PackedBlock, streamBytes: number, atMs: number): void {
    this.totalBytes += streamBytes;
    this.retainedBytes += entry.chunk.length;
    this.#data.push(data);
    this.#seqs.push(entry.seq);
    this.#streams.push(entry.stream);
    this.#ends.push(this.totalBytes);
    this.#times.push(atMs);
    // Only a packed chunk continues the open block.
    if (data !== this.#open) this.#open = null;
    this.#newest = null;
  }

  /** Copies a chunk to the end of the open block, or to a new one. */
  #pack(chunk: Uint8Array): PackedBlock {
    const open = this.#open;
    if (open && open.usedBytes + chunk.length <= open.bytes.length) {
      open.bytes.set(chunk, open.usedBytes);
      open.usedBytes += chunk.length;
      return open;
    }
    const size = Math.min(MAX_BLOCK_BYTES, open ? 2 * open.bytes.length : FIRST_BLOCK_BYTES);
    // Readers get chunks of the class that the log received: a Buffer in Node.
    const bytes: Uint8Array = Object.setPrototypeOf(
      new Uint8Array(Math.max(size, chunk.length)),
      Object.getPrototypeOf(chunk),
    );
    bytes.set(chunk);
    this.#open = { bytes, startOffset: this.totalBytes, usedBytes: chunk.length };
    return this.#open;
  }

  #lengthAt(index: number): number {
    const data = this.#data[index];
    if (!data || data instanceof Uint8Array) return data?.length ?? 0;
    return (this.#ends[index] ?? 0) - this.#startAt(index, data);
  }

  /** Stream offset of a packed chunk. An evicted chunk before it has left its end offset. */
  #startAt(index: number, block: PackedBlock): number {
    return index === 0 ? block.startOffset : Math.max(block.startOffset, this.#ends[index - 1] ?? 0);
  }

  #chunkAt(index: number): OutputChunk | null {
    const data = this.#data[index];
    if (!data) return null;
    const newest = this.#newest;
    const seq = this.#seqs[index] ?? 0;
    if (newest?.seq === seq) return newest;
    const stream = this.#streams[index] ?? "stdout";
    if (data instanceof Uint8Array) return { seq, stream, chunk: data };
    const from = this.#startAt(index, data) - data.startOffset;
    const to = (this.#ends[index] ?? 0) - data.startOffset;
    // The method of Buffer with this name returns a view.
    return { seq, stream, chunk: Uint8Array.prototype.slice.call(data.bytes, from, to) };
  }

  #dropEvictedEntries(): void {
    // Keeps one entry: the end offset of the last evicted chunk is the start offset of the first packed chunk.
    const from = this.#first - 1;
    this.#data = this.#data.slice(from);
    this.#seqs = this.#seqs.slice(from);
    this.#streams = this.#streams.slice(from);
    this.#ends = this.#ends.slice(from);
    this.#times = this.#times.slice(from);
    this.#first = 1;
  }

  #indexAfter(seq: number): number {
    // Most readers are at the end, so check the end before the search.
    const last = this.#seqs.at(-1);
    if (last === undefined || last <= seq) return this.#seqs.length;
    return upperBound(this.#seqs, seq, this.#first);
  }
}

const NOTHING = new Uint8Array(0);

/** Returns the first index from `from` whose value is greater than `value` in a sorted array. */
function upperBound(sorted: readonly number[], value: number, from: number): number {
  let low = from;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle] ?? 0) > value) high = middle;
    else low = middle + 1;
  }
  return low;
}
