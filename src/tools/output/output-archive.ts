import type { FileHandle } from "node:fs/promises";
import { open, rm } from "node:fs/promises";
import { HeadTailBuffer } from "../../exec/log/head-tail-buffer.ts";

export interface ArchiveLimits {
  /** Output up to this size stays in memory; beyond it, this much at each end does, half and half. */
  memoryBytes: number;
  /** The most a file takes. */
  fileBytes: number;
}

/** 1 MiB is what Codex keeps of a session; 64 MiB is a very long build log, and 64 sessions of it still fit on a disk. */
export const DEFAULT_ARCHIVE_LIMITS: ArchiveLimits = {
  memoryBytes: 1024 * 1024,
  fileBytes: 64 * 1024 * 1024,
};

export interface ArchivedRange {
  bytes: Uint8Array;
  /** Where the bytes begin: later than asked for when what was asked for is not kept. */
  offset: number;
}

/**
 * Everything a session has written, as far as the limits go: in memory while it is little, then in a file. When the
 * file is full, or cannot be written, the end is still kept in memory.
 */
export class OutputArchive {
  readonly #limits: ArchiveLimits;
  readonly #newFile: () => Promise<string>;
  readonly #memory: HeadTailBuffer;
  #file: { path: string; handle: FileHandle; bytes: number } | null = null;
  #spills = true;

  /** `newFile` names a file that does not exist yet; called when one is first needed. */
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

  /** The beginning and the end, from memory. */
  ends(): { head: Uint8Array; tail: Uint8Array; omittedBytes: number } {
    const { omittedBytes } = this.#memory;
    return { head: this.#memory.head(), tail: this.#memory.tail(), omittedBytes };
  }

  /** To be awaited before the next one. */
  async append(chunk: Uint8Array): Promise<void> {
    const before = this.#memory.totalBytes;
    if (before + chunk.length > this.#limits.memoryBytes && this.#spills) {
      if (!this.#file) await this.#openFile();
      await this.#spill(chunk);
    }
    this.#memory.push(chunk);
  }

  /** Up to `length` bytes from `offset`. */
  async read(offset: number, length: number): Promise<ArchivedRange> {
    const start = Math.max(0, Math.min(offset, this.totalBytes));
    if (start < this.#frontBytes) return this.#readFront(start, Math.min(length, this.#frontBytes - start));
    const tail = this.#memory.tail();
    const from = Math.max(start, this.totalBytes - tail.length);
    const at = from - (this.totalBytes - tail.length);
    return { bytes: tail.subarray(at, at + length), offset: from };
  }

  async dispose(): Promise<void> {
    this.#spills = false;
    const file = this.#file;
    this.#file = null;
    if (!file) return;
    await file.handle.close();
    await rm(file.path, { force: true });
  }

  /** How much of the beginning is kept without a hole. */
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
      // No place for a file: the two ends in memory have to do, and what is missing is counted.
      this.#spills = false;
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
      this.#spills = false;
    }
    if (file.bytes >= this.#limits.fileBytes) this.#spills = false;
  }
}
