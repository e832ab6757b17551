import { concatBytes } from "../../base/bytes.ts";
import { freeCopiedBuffer } from "../../base/free-buffer.ts";

/**
 * Minimum size of a chunk that is stored by reference. Smaller chunks are packed, so that a million of them does not
 * cost a million objects.
 */
const MIN_REFERENCED_BYTES = 16 * 1024;
/** Maximum size of a block of packed chunks. */
const MAX_BLOCK_BYTES = 64 * 1024;
const FIRST_BLOCK_BYTES = 1024;

/** Head and tail of a byte stream, with the number of omitted bytes between them. */
export class HeadTailBuffer {
  #headBytes: number;
  #tailBytes: number;
  readonly #onDropped: OnDropped;
  readonly #head = new BlockList();
  readonly #tail = new BlockList();
  totalBytes = 0;

  constructor(limits: { headBytes: number; tailBytes: number }, onDropped: OnDropped = () => undefined) {
    this.#headBytes = limits.headBytes;
    this.#tailBytes = limits.tailBytes;
    this.#onDropped = onDropped;
  }

  push(chunk: Uint8Array, seq = 0): void {
    this.totalBytes += chunk.length;
    const toHead = Math.min(chunk.length, this.#headBytes - this.#head.bytes);
    // Most chunks arrive when the head is full. They need no view for it.
    if (toHead > 0) this.#head.push(chunk.subarray(0, toHead), seq);
    const toTail = Math.min(chunk.length - toHead, this.#tailBytes);
    this.#tail.push(toTail === chunk.length ? chunk : chunk.subarray(chunk.length - toTail), seq);
    this.#drop(this.#tail.dropFrontBeyond(this.#tailBytes));
  }

  /** Frees dropped blocks of this buffer, and reports dropped references. */
  #drop(dropped: readonly Block[]): void {
    for (const { bytes, isPacked, seq } of dropped) {
      if (isPacked) freeCopiedBuffer(bytes);
      else if (!this.refersTo(bytes)) this.#onDropped(bytes, seq);
    }
  }

  get omittedBytes(): number {
    return this.totalBytes - this.#head.bytes - Math.min(this.#tail.bytes, this.#tailBytes);
  }

  /** Bytes in memory. May exceed the limits slightly, because only whole blocks are dropped. */
  get retainedBytes(): number {
    return this.#head.bytes + this.#tail.bytes;
  }

  /** Reports whether a block shares the memory of `chunk`. */
  refersTo(chunk: Uint8Array): boolean {
    return this.#head.refersTo(chunk) || this.#tail.refersTo(chunk);
  }

  /** Lowers the limits to `bytes` in total, half for each end. */
  shrinkTo(bytes: number): void {
    const half = Math.ceil(bytes / 2);
    this.#tailBytes = Math.min(this.#tailBytes, half);
    this.#headBytes = Math.min(this.#headBytes, half);
    this.#drop([...this.#tail.keepEnd(this.#tailBytes), ...this.#head.keepStart(this.#headBytes)]);
  }

  /** Drops all bytes. */
  clear(): void {
    this.#drop([...this.#tail.keepEnd(0), ...this.#head.keepStart(0)]);
  }

  head(): Uint8Array {
    return this.#head.concat();
  }

  tail(): Uint8Array {
    const all = this.#tail.concat();
    return all.subarray(Math.max(0, all.length - this.#tailBytes));
  }

  /** Returns head and tail joined, without a marker for omitted bytes. */
  bytes(): Uint8Array {
    return concatBytes([this.head(), this.tail()]);
  }
}

/** Called for a chunk that the buffer referenced. `seq` is the number that the chunk was pushed with. */
type OnDropped = (chunk: Uint8Array, seq: number) => void;

/** Packed chunks, whose memory belongs to the list, or a reference to one chunk with its `seq`. */
interface Block {
  bytes: Uint8Array;
  isPacked: boolean;
  seq: number;
}

/** A byte queue made of blocks; only whole blocks are dropped at the front. */
class BlockList {
  readonly #blocks: Block[] = [];
  #open: { block: Uint8Array; used: number } | null = null;
  bytes = 0;

  push(chunk: Uint8Array, seq: number): void {
    this.bytes += chunk.length;
    // A small view is copied, because a reference would retain the whole buffer.
    if (chunk.length >= MIN_REFERENCED_BYTES && 2 * chunk.length > chunk.buffer.byteLength) {
      this.#seal();
      this.#blocks.push({ bytes: chunk, isPacked: false, seq });
      return;
    }
    let rest = chunk;
    while (rest.length > 0) {
      const open = this.#openBlock(rest.length);
      const part = rest.subarray(0, open.block.length - open.used);
      open.block.set(part, open.used);
      open.used += part.length;
      rest = rest.subarray(part.length);
    }
  }

  /** Drops whole blocks at the front while at least `bytes` remain. Returns them. */
  dropFrontBeyond(bytes: number): readonly Block[] {
    let count = 0;
    for (const front of this.#blocks) {
      if (this.bytes - front.bytes.length < bytes) break;
      this.bytes -= front.bytes.length;
      count++;
    }
    return count === 0 ? NO_BLOCKS : this.#blocks.splice(0, count);
  }

  /** Drops all bytes before the last `bytes`. Returns the dropped blocks. */
  keepEnd(bytes: number): readonly Block[] {
    this.#seal();
    const dropped = [...this.dropFrontBeyond(bytes)];
    const front = this.#blocks[0];
    if (front && this.bytes > bytes) {
      this.#blocks[0] = packed(new Uint8Array(front.bytes.subarray(this.bytes - bytes)));
      this.bytes = bytes;
      dropped.push(front);
    }
    return dropped;
  }

  /** Drops all bytes after the first `bytes`. Returns the dropped blocks. */
  keepStart(bytes: number): readonly Block[] {
    this.#seal();
    const dropped: Block[] = [];
    while (this.bytes > bytes) {
      const last = this.#blocks.pop();
      if (!last) break;
      this.bytes -= last.bytes.length;
      dropped.push(last);
      if (this.bytes >= bytes) continue;
      this.#blocks.push(packed(new Uint8Array(last.bytes.subarray(0, bytes - this.bytes))));
      this.bytes = bytes;
    }
    return dropped;
  }

  refersTo(chunk: Uint8Array): boolean {
    return this.#blocks.some(({ bytes }) => bytes.buffer === chunk.buffer);
  }

  /** Returns a copy, because the memory of a block may be freed. */
  concat(): Uint8Array {
    const open = this.#open ? [this.#open.block.subarray(0, this.#open.used)] : [];
    return concatBytes([...this.#blocks.map(({ bytes }) => bytes), ...open, NO_BYTES]);
  }

  #openBlock(minBytes: number): { block: Uint8Array; used: number } {
    if (this.#open && this.#open.used < this.#open.block.length) return this.#open;
    const previous = this.#open?.block.length ?? FIRST_BLOCK_BYTES / 2;
    this.#seal();
    const size = Math.min(MAX_BLOCK_BYTES, Math.max(previous * 2, minBytes));
    this.#open = { block: new Uint8Array(size), used: 0 };
    return this.#open;
  }

  #seal(): void {
    if (!this.#open) return;
    this.#blocks.push(packed(this.#open.block.subarray(0, this.#open.used)));
    this.#open = null;
  }
}

const NO_BLOCKS: readonly Block[] = [];
const NO_BYTES = new Uint8Array(0);

function packed(bytes: Uint8Array): Block {
  return { bytes, isPacked: true, seq: 0 };
}
