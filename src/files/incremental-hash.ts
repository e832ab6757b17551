import { createHash, type Hash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";

/** Bytes read per call when the hash catches up. */
const BLOCK_BYTES = 1024 * 1024;

/**
 * The SHA-256 of a file's first bytes, updated while they are read or written in order. Bytes that were skipped are read
 * again by `digest`.
 */
export class IncrementalHash {
  #hash: Hash | null = null;
  #length = 0;
  /** False until the first `digest`: most handles never need a checksum. */
  #isRequested: boolean;

  constructor(isRequested: boolean) {
    this.#isRequested = isRequested;
  }

  onRead(offset: number, chunk: Uint8Array): void {
    if (this.#isRequested && offset === this.#length) this.#add(chunk);
  }

  onWrite(offset: number, chunk: Uint8Array): void {
    // Hashed bytes were overwritten.
    if (offset < this.#length) this.#restart();
    this.onRead(offset, chunk);
  }

  /** Returns null if the file is shorter than `length`. From the first call on, reads and writes update the hash. */
  async digest(file: FileHandle, length: number): Promise<string | null> {
    this.#isRequested = true;
    if (length < this.#length) this.#restart();
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

  #restart(): void {
    this.#hash = null;
    this.#length = 0;
  }
}
