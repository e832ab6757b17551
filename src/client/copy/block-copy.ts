import { freeCopied } from "../../base/free-buffer.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { RemoteFile } from "../files/remote-file.ts";
import type { RemoteFiles, ScannedEntry } from "../files/remote-files.ts";
import { partPath } from "./partial-file-name.ts";

/** The protocol's largest block. */
export const BLOCK_BYTES = 1024 * 1024;
/** Blocks under way at once: a far host is kept busy, and neither side holds more than these in memory. */
export const BLOCKS_AT_ONCE = 8;
/** A part with less than this is not worth coming back to, and is removed. */
const WORTH_KEEPING_BYTES = BLOCK_BYTES;

export interface FilePlace {
  files: RemoteFiles;
  path: string;
}

export interface LargeFileOptions {
  signal?: AbortSignal | undefined;
  /** Bytes that have arrived; negative when some were not what the source has and are copied again. */
  onBytes: (count: number) => void;
  /** A part was left behind, and the same copy goes on from it. */
  onKept: (partPath: string) => void;
}

/**
 * Copies one file in blocks. They go to a part beside the destination, which is renamed when it is whole and both sides have
 * the same SHA-256 of it. A lost connection is waited for, and the copy goes on with what the part has.
 */
export async function copyLargeFile(
  from: FilePlace,
  to: FilePlace,
  entry: ScannedEntry,
  options: LargeFileOptions,
): Promise<void> {
  const part = partPath(to.path, { path: from.path, size: entry.size, modifiedAtMs: entry.modifiedAtMs });
  const copy = new LargeFileCopy(from, to, part, entry, options);
  try {
    while ((await copy.tryOnce()) === "again");
  } catch (error) {
    await copy.leave(error);
    throw error;
  }
}

class LargeFileCopy {
  readonly #from: FilePlace;
  readonly #to: FilePlace;
  readonly #part: string;
  readonly #entry: ScannedEntry;
  readonly #options: LargeFileOptions;
  /** Bytes told to `onBytes`. */
  #told = 0;
  /** The end was asked for and its answer never came: it may have been done. */
  #mayBeDone = false;

  constructor(from: FilePlace, to: FilePlace, part: string, entry: ScannedEntry, options: LargeFileOptions) {
    this.#from = from;
    this.#to = to;
    this.#part = part;
    this.#entry = entry;
    this.#options = options;
  }

  /** `again`: a connection was lost on the way, and there is another one. */
  async tryOnce(): Promise<"done" | "again"> {
    const { signal } = this.#options;
    if (this.#mayBeDone && (await this.#isDone())) return "done";
    let source: RemoteFile | null = null;
    let part: RemoteFile | null = null;
    try {
      source = await this.#from.files.open(this.#from.path, "read", { signal });
      const opened = await this.#openMatching(source);
      part = opened.file;
      this.#tell(opened.size);
      await this.#move(source, part, opened.size);
      await this.#finish(source, part);
      return "done";
    } catch (error) {
      if (!isLostHandle(error)) throw error;
    } finally {
      // The connection of a handle may be gone, and the handle with it.
      await Promise.allSettled([source?.close(), part?.close()]);
    }
    await Promise.all([this.#from.files, this.#to.files].map((files) => untilConnected(files, signal)));
    return "again";
  }

  /** After a failure: says that the part is there to go on from, or removes it. */
  async leave(error: unknown): Promise<void> {
    const { signal, onKept } = this.#options;
    const isInterrupted = signal?.aborted === true || codeOf(error) === "DISCONNECTED";
    if (isInterrupted && this.#told >= WORTH_KEEPING_BYTES) onKept(this.#part);
    else await this.#to.files.remove(this.#part).catch(() => undefined);
  }

  /** The part as it is, when it is a beginning of the source; else a new one. */
  async #openMatching(source: RemoteFile): Promise<{ file: RemoteFile; size: number }> {
    const { files } = this.#to;
    const { signal } = this.#options;
    const opened = await files.openPart(this.#part, { signal });
    // Asked also of an empty one: from now on the source counts what is read of it.
    const [ours, theirs] = await Promise.all([
      opened.file.checksum(opened.size, { signal }),
      source.checksum(opened.size, { signal }),
    ]);
    if (opened.size <= this.#entry.size && ours !== null && ours === theirs) return opened;
    await opened.file.close();
    await files.remove(this.#part);
    await source.checksum(0, { signal });
    return files.openPart(this.#part, { signal });
  }

  /** Both sides do what they are asked in order, so blocks arrive in order however many are under way. */
  async #move(source: RemoteFile, part: RemoteFile, from: number): Promise<void> {
    const { signal } = this.#options;
    const moving: Promise<void>[] = [];
    const moveBlock = async (at: number, length: number): Promise<void> => {
      const { chunk } = await source.read(at, length, { signal });
      if (chunk.length !== length) throw this.#changed();
      await part.write(at, chunk, { signal });
      freeCopied(chunk);
      this.#tell(this.#told + length);
    };
    try {
      for (let at = from; at < this.#entry.size; at += BLOCK_BYTES) {
        if (moving.length >= BLOCKS_AT_ONCE) await moving.shift();
        const block = moveBlock(at, Math.min(BLOCK_BYTES, this.#entry.size - at));
        // Looked at in its turn.
        block.catch(() => undefined);
        moving.push(block);
      }
      await Promise.all(moving);
    } finally {
      // The first failure is the one that is told; the others end by themselves.
      await Promise.allSettled(moving);
    }
  }

  async #finish(source: RemoteFile, part: RemoteFile): Promise<void> {
    const { signal } = this.#options;
    const { size, mode, modifiedAtMs } = this.#entry;
    const sha256 = await source.checksum(size, { signal });
    const now = (await this.#from.files.scan(this.#from.path, { signal })).self;
    if (sha256 === null || now.size !== size || now.modifiedAtMs !== modifiedAtMs) throw this.#changed();
    this.#mayBeDone = true;
    await part.commit(this.#to.path, { size, sha256, mode, modifiedAtMs }, { signal });
  }

  /** Whether the end that was asked for has come to pass: then there is no part any more, and the file is the source. */
  async #isDone(): Promise<boolean> {
    this.#mayBeDone = false;
    const { files, path } = this.#to;
    const { signal } = this.#options;
    if (await files.exists(this.#part, { signal })) return false;
    const same = await haveSameContent(this.#from, this.#to, this.#entry.size, signal).catch((error) => {
      if (codeOf(error) === "ENOENT") return false;
      throw error;
    });
    return same && (await files.scan(path, { signal })).self.size === this.#entry.size;
  }

  #tell(total: number): void {
    this.#options.onBytes(total - this.#told);
    this.#told = total;
  }

  #changed(): Error {
    const { path } = this.#from;
    return new ExecServerError("the file changed while it was copied; copy it again", "CHANGED", { path });
  }
}

/** Whether the first `size` bytes of both files have the same SHA-256. */
export async function haveSameContent(
  one: FilePlace,
  other: FilePlace,
  size: number,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  const sums = await Promise.all(
    [one, other].map(async ({ files, path }) => {
      await using file = await files.open(path, "read", { signal });
      return await file.checksum(size, { signal });
    }),
  );
  return sums[0] !== null && sums[0] === sums[1];
}

/** A handle ends with its connection; on the next one the server does not know it. */
export function isLostHandle(error: unknown): boolean {
  if (!(error instanceof ExecServerError)) return false;
  return error.code === "DISCONNECTED" || error.message.startsWith("unknown file handle");
}

/** Waits for the next connection after a loss; rejects when there will be none. */
export async function untilConnected(files: RemoteFiles, signal: AbortSignal | undefined): Promise<void> {
  await files.exists("/", { signal });
}

export function codeOf(error: unknown): string | null {
  return error instanceof ExecServerError ? error.code : null;
}
