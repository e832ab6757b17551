import { type FileHandle, open, rm } from "node:fs/promises";
import { clamp } from "../../base/clamp.ts";
import { HeadTailBuffer } from "../../exec/log/head-tail-buffer.ts";

export interface ArchiveLimits {
  /** Maximum bytes in memory. If the output is longer, memory holds half of this limit from each end. */
  memoryBytes: number;
  /** Maximum bytes in the file. */
  fileBytes: number;
}

/** Codex retains 1 MiB per session. 64 MiB hold a very long build log, and 64 such sessions still fit on a disk. */
export const DEFAULT_ARCHIVE_LIMITS: ArchiveLimits = {
  memoryBytes: 1024 * 1024,
  fileBytes: 64 * 1024 * 1024,
};

export interface ArchivedRange {
  bytes: Uint8Array;
  /** Position of `bytes`. Greater than the requested offset if that part was not retained. */
  offset: number;
}

/**
 * Output of an exec session within the limits, first in memory, then in a file. If the file is full or cannot be written,
 * memory still retains the tail.
 */
export class OutputArchive {
  readonly #limits: ArchiveLimits;
  readonly #newFile: () => Promise<string>;
  readonly #memory: HeadTailBuffer;
  #file: { path: string; handle: FileHandle; bytes: number } | null = null;
  #canSpill = true;

  /** `newFile` returns the path of a file that does not exist yet. Called on first use. */
  constructor(newFile: () => Promise<string>, limits: ArchiveLimits = DEFAULT_ARCHIVE_LIMITS) {
    this.#limits = limits;
    this.#newFile = newFile;
    const half = Math.floor(limits.memoryBytes / 2);
    this.#memory = new HeadTailBuffer({ headBytes: half, tailBytes: half });
  }

  get totalBytes(): number {
    return this.#memory.totalBytes;
  }

  get omittedBytes(): number {
    return Math.max(0, this.#tailStart - this.#frontBytes);
  }

  /** Returns head and tail from memory. */
  headAndTail(): { head: Uint8Array; tail: Uint8Array; omittedBytes: number } {
    const { omittedBytes } = this.#memory;
    return { head: this.#memory.head(), tail: this.#memory.tail(), omittedBytes };
  }

  /** Appends a chunk. Await it before the next call. */
  async append(chunk: Uint8Array): Promise<void> {
    const before = this.#memory.totalBytes;
    if (before + chunk.length > this.#limits.memoryBytes && this.#canSpill) {
      if (!this.#file) await this.#openFile();
      await this.#spill(chunk);
    }
    this.#memory.push(chunk);
  }

  /** Reads up to `length` bytes from `offset`. */
  async read(offset: number, length: number): Promise<ArchivedRange> {
    const start = clamp(offset, 0, this.totalBytes);
    if (start < this.#frontBytes) return this.#readFront(start, Math.min(length, this.#frontBytes - start));
    const tail = this.#memory.tail();
    const from = Math.max(start, this.totalBytes - tail.length);
    const at = from - (this.totalBytes - tail.length);
    return { bytes: tail.subarray(at, at + length), offset: from };
  }

  async dispose(): Promise<void> {
    this.#canSpill = false;
    const file = this.#file;
    this.#file = null;
    if (!file) return;
    await file.handle.close();
    await rm(file.path, { force: true });
  }

  /** Number of contiguous bytes retained from the start. */
  get #frontBytes(): number {
    if (this.#file) return this.#file.bytes;
    const { omittedBytes, totalBytes } = this.#memory;
    return omittedBytes === 0 ? totalBytes : this.#memory.head().length;
  }

  get #tailStart(): number {
    return this.#memory.omittedBytes === 0 ? 0 : this.totalBytes - this.#memory.tail().length;
  }

  async #readFront(start: number, length: number): Promise<ArchivedRange> {
    const file = this.#file;
    if (!file) return { bytes: this.#memory.bytes().subarray(start, start + length), offset: start };
    const bytes = new Uint8Array(length);
    const { bytesRead } = await file.handle.read(bytes, 0, length, start);
    return { bytes: bytes.subarray(0, bytesRead), offset: start };
  }

  async #openFile(): Promise<void> {
    try {
      const path = await this.#newFile();
      this.#file = { path, handle: await open(path, "wx+", 0o600), bytes: 0 };
    } catch {
      // Without a file, memory retains head and tail, and omitted bytes are counted.
      this.#canSpill = false;
      return;
    }
    await this.#spill(this.#memory.bytes());
  }

  async #spill(chunk: Uint8Array): Promise<void> {
    const file = this.#file;
    if (!file) return;
    const part = chunk.subarray(0, this.#limits.fileBytes - file.bytes);
    try {
      for (let at = 0; at < part.length; ) {
        const { bytesWritten } = await file.handle.write(part, at, part.length - at, file.bytes);
        at += bytesWritten;
        file.bytes += bytesWritten;
      }
    } catch {
      this.#canSpill = false;
    }
    if (file.bytes >= this.#limits.fileBytes) this.#canSpill = false;
  }
}
