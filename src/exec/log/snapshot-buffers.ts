import type { OutputStream } from "../exec-process.ts";
import { HeadTailBuffer } from "./head-tail-buffer.ts";
import type { Evictable, RetentionBudget } from "./retention-budget.ts";

/** Bytes a process retains for snapshots even when all snapshots together exceed their budget. */
export const MIN_SNAPSHOT_BYTES = 8 * 1024;

export interface SnapshotBuffersOptions {
  /** Bytes per stream, at each end. */
  limits: { headBytes: number; tailBytes: number };
  /** Bounds the snapshots of all processes together. */
  budget: RetentionBudget | undefined;
  isClosed: () => boolean;
  /** Called for a chunk that no buffer references any longer. */
  onDropped?: ((chunk: Uint8Array, seq: number) => void) | undefined;
}

/** Head and tail of each stream of a process, retained for snapshots. Cursors do not pin them. */
export class SnapshotBuffers implements Evictable {
  readonly #options: SnapshotBuffersOptions;
  readonly #streams = new Map<OutputStream, HeadTailBuffer>();
  retainedBytes = 0;

  constructor(options: SnapshotBuffersOptions) {
    this.#options = options;
    options.budget?.join(this);
  }

  get isClosed(): boolean {
    return this.#options.isClosed();
  }

  get(stream: OutputStream): HeadTailBuffer {
    let buffer = this.#streams.get(stream);
    if (!buffer) {
      buffer = new HeadTailBuffer(this.#options.limits, this.#options.onDropped);
      this.#streams.set(stream, buffer);
    }
    return buffer;
  }

  /** Reports whether a buffer holds a reference to the memory of `chunk`. */
  refersTo(chunk: Uint8Array): boolean {
    for (const stream of this.#streams.values()) if (stream.refersTo(chunk)) return true;
    return false;
  }

  /** Recounts the retained bytes; call it after a push to a buffer. */
  count(): void {
    let bytes = 0;
    for (const stream of this.#streams.values()) bytes += stream.retainedBytes;
    const addedBytes = bytes - this.retainedBytes;
    this.retainedBytes = bytes;
    const { budget } = this.#options;
    if (addedBytes > 0) budget?.grow(addedBytes);
    else budget?.shrink(-addedBytes);
  }

  evictTo(bytes: number): void {
    const share = Math.max(bytes, MIN_SNAPSHOT_BYTES) / Math.max(1, this.#streams.size);
    for (const stream of this.#streams.values()) if (stream.retainedBytes > share) stream.shrinkTo(share);
    this.count();
  }

  dispose(): void {
    for (const stream of this.#streams.values()) stream.clear();
    this.#streams.clear();
    this.count();
    this.#options.budget?.leave(this);
  }
}
