import { createHash, type Hash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";

/** How much is read at a time of what went by unseen. */
const BLOCK_BYTES = 1024 * 1024;

/**
 * The SHA-256 of a file from its beginning on, taken along while it is read or written in order. What went by out of order
 * is read again when somebody asks.
 */
export class RunningHash {
  #hash: Hash | null = null;
  #length = 0;
  /** Most handles are never asked for a checksum and should not pay for one. */
  #isWanted: boolean;

  constructor(isWanted: boolean) {
    this.#isWanted = isWanted;
  }

  wasRead(offset: number, chunk: Uint8Array): void {
    if (this.#isWanted && offset === this.#length) this.#add(chunk);
  }

  wasWritten(offset: number, chunk: Uint8Array): void {
    // What has been counted is another content now.
    if (offset < this.#length) this.#startOver();
    this.wasRead(offset, chunk);
  }

  /** Null when the file is shorter than this. Asked once, it counts what goes by from then on. */
  async of(file: FileHandle, length: number): Promise<string | null> {
    this.#isWanted = true;
    if (length < this.#length) this.#startOver();
    const block = Buffer.allocUnsafe(Math.min(BLOCK_BYTES, Math.max(length - this.#length, 1)));
    while (this.#length < length) {
      const wanted = Math.min(block.length, length - this.#length);
      const { bytesRead } = await file.read(block, 0, wanted, this.#length);
      if (bytesRead === 0) return null;
      this.#add(block.subarray(0, bytesRead));
    }
    return (this.#hash?.copy() ?? createHash("sha256")).digest("hex");
  }

  #add(chunk: Uint8Array): void {
    this.#hash ??= createHash("sha256");
    this.#hash.update(chunk);
    this.#length += chunk.length;
  }

  #startOver(): void {
    this.#hash = null;
    this.#length = 0;
  }
}
