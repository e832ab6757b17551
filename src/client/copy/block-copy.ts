import { freeReceivedBlock } from "../../base/free-buffer.ts";
import { IS_DENO } from "../../base/js-runtime.ts";
import { isUnknownFileHandle } from "../../exec/compat.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import { MAX_BLOCK_BYTES } from "../../protocol/file-schemas.ts";
import type { RemoteFile } from "../files/remote-file.ts";
import type { RemoteFiles, ScannedEntry } from "../files/remote-files.ts";
import type { CopyEndpoint } from "./copy-types.ts";
import { partialFilePath } from "./partial-file-name.ts";

/** Maximum blocks in flight: enough to keep a remote host busy, and the bound on memory of both sides. */
export const MAX_BLOCKS_IN_FLIGHT = 8;
/** Minimum size of a partial file that is kept after an interruption; a smaller one is removed. */
const MIN_PARTIAL_BYTES = MAX_BLOCK_BYTES;

export interface BlockCopyOptions {
  signal?: AbortSignal | undefined;
  /** Called with the number of bytes that arrived; negative if some differ from the source and are copied again. */
  onBytes: (count: number) => void;
  /** Called when a partial file remains; the same copy resumes from it. */
  onPartialKept: (partialPath: string) => void;
}

/**
 * Copies one file in blocks. The blocks go to a partial file in the directory of the destination. The copy
 * renames it once both sides have the same checksum. After a lost connection the copy waits for the next connection and
 * resumes from the partial file.
 */
export async function copyInBlocks(
  from: CopyEndpoint,
  to: CopyEndpoint,
  entry: ScannedEntry,
  options: BlockCopyOptions,
): Promise<void> {
  const copy = new BlockCopy(from, to, entry, options);
  try {
    while ((await copy.attempt()) === "again");
  } catch (error) {
    await copy.keepOrRemovePartial(error);
    throw error;
  }
}

class BlockCopy {
  readonly #from: CopyEndpoint;
  readonly #to: CopyEndpoint;
  readonly #partialPath: string;
  readonly #entry: ScannedEntry;
  readonly #options: BlockCopyOptions;
  readonly #gmacKey = newGmacKey();
  /** Bytes reported to `onBytes`. */
  #reportedBytes = 0;
  /** True if the commit was sent and its result was lost: it may have succeeded. */
  #mayBeCommitted = false;

  constructor(from: CopyEndpoint, to: CopyEndpoint, entry: ScannedEntry, options: BlockCopyOptions) {
    this.#from = from;
    this.#to = to;
    this.#partialPath = partialFilePath(to.path, { ...entry, path: from.path });
    this.#entry = entry;
    this.#options = options;
  }

  /** Returns `again` after a lost connection, once there is a new one. */
  async attempt(): Promise<"done" | "again"> {
    const { signal } = this.#options;
    if (this.#mayBeCommitted && (await this.#isCommitted())) return "done";
    let source: RemoteFile | null = null;
    let partial: RemoteFile | null = null;
    try {
      source = await this.#from.files.open(this.#from.path, "read", { signal });
      const opened = await this.#openMatching(source);
      partial = opened.file;
      this.#reportProgress(opened.size);
      await this.#copyBlocks(source, partial, opened.size);
      await this.#commit(source, partial);
      return "done";
    } catch (error) {
      if (!isStaleHandle(error)) throw error;
    } finally {
      // The connection of a file handle may be lost, and the handle with it.
      await Promise.allSettled([source?.close(), partial?.close()]);
    }
    await Promise.all([this.#from.files, this.#to.files].map((files) => whenConnected(files, signal)));
    return "again";
  }

  /** After a failure, reports the partial file for a later resume, or removes it. */
  async keepOrRemovePartial(error: unknown): Promise<void> {
    const { signal, onPartialKept } = this.#options;
    const isInterrupted = signal?.aborted === true || systemErrorCode(error) === "DISCONNECTED";
    if (isInterrupted && this.#reportedBytes >= MIN_PARTIAL_BYTES) onPartialKept(this.#partialPath);
    else await this.#removePartial().catch(() => undefined);
  }

  /** Opens the partial file if its content matches the beginning of the source; otherwise creates a new one. */
  async #openMatching(source: RemoteFile): Promise<{ file: RemoteFile; size: number }> {
    const { files } = this.#to;
    const { signal } = this.#options;
    const gmacKey = this.#gmacKey;
    const opened = await files.openPartial(this.#partialPath, { followSymlinks: false, signal });
    // Needed for an empty file too, because the source starts its running checksum here.
    const [partialSum, sourceSum] = await Promise.all([
      opened.file.checksum(opened.size, { signal, gmacKey }),
      source.checksum(opened.size, { signal, gmacKey }),
    ]);
    if (opened.size <= this.#entry.size && partialSum !== null && partialSum === sourceSum) return opened;
    await opened.file.close();
    await this.#removePartial();
    const created = await files.openPartial(this.#partialPath, { followSymlinks: false, signal });
    await Promise.all([created.file.checksum(0, { signal, gmacKey }), source.checksum(0, { signal, gmacKey })]);
    return created;
  }

  #removePartial(): Promise<void> {
    return this.#to.files.remove(this.#partialPath, { recursive: false, followSymlinks: false });
  }

  /** Copies the blocks from `firstOffset`. Both sides handle requests in order, so blocks arrive in order. */
  async #copyBlocks(source: RemoteFile, partial: RemoteFile, firstOffset: number): Promise<void> {
    const { signal } = this.#options;
    const copying: Promise<void>[] = [];
    const copyBlock = async (offset: number, length: number): Promise<void> => {
      const { chunk } = await source.read(offset, length, { signal });
      if (chunk.length !== length) throw this.#changedError();
      await partial.write(offset, chunk, { signal });
      freeReceivedBlock(chunk);
      this.#reportProgress(this.#reportedBytes + length);
    };
    try {
      for (let offset = firstOffset; offset < this.#entry.size; offset += MAX_BLOCK_BYTES) {
        if (copying.length >= MAX_BLOCKS_IN_FLIGHT) await copying.shift();
        const block = copyBlock(offset, Math.min(MAX_BLOCK_BYTES, this.#entry.size - offset));
        // The loop awaits it later and handles a rejection there.
        block.catch(() => undefined);
        copying.push(block);
      }
      await Promise.all(copying);
    } finally {
      // The first failure rejects; the results of the remaining blocks are ignored.
      await Promise.allSettled(copying);
    }
  }

  async #commit(source: RemoteFile, partial: RemoteFile): Promise<void> {
    const { signal } = this.#options;
    const { size, mode, modifiedAtMs } = this.#entry;
    const digest = await source.checksum(size, { signal, gmacKey: this.#gmacKey });
    const current = (await this.#from.files.scan(this.#from.path, { signal })).self;
    if (digest === null || current.size !== size || current.modifiedAtMs !== modifiedAtMs) throw this.#changedError();
    this.#mayBeCommitted = true;
    const whole = { size, digest, mode, modifiedAtMs, followSymlinks: false };
    await partial.commit(this.#to.path, whole, { signal });
  }

  /** Reports whether the lost commit succeeded: the partial file does not exist, and the file equals the source. */
  async #isCommitted(): Promise<boolean> {
    this.#mayBeCommitted = false;
    const { files, path } = this.#to;
    const { signal } = this.#options;
    if (await files.exists(this.#partialPath, { signal })) return false;
    const same = await haveSameContent(this.#from, this.#to, this.#entry.size, signal).catch((error) => {
      if (systemErrorCode(error) === "ENOENT") return false;
      throw error;
    });
    return same && (await files.scan(path, { followSymlinks: false, signal })).self.size === this.#entry.size;
  }

  #reportProgress(total: number): void {
    this.#options.onBytes(total - this.#reportedBytes);
    this.#reportedBytes = total;
  }

  #changedError(): Error {
    const { path } = this.#from;
    return new ExecServerError("the file changed while it was copied; copy it again", "CHANGED", { path });
  }
}

/** Reports whether the first `size` bytes of both files have the same checksum. */
export async function haveSameContent(
  first: CopyEndpoint,
  second: CopyEndpoint,
  size: number,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  const gmacKey = newGmacKey();
  const sums = await Promise.all(
    [first, second].map(async ({ files, path }) => {
      await using file = await files.open(path, "read", { signal });
      return await file.checksum(size, { signal, gmacKey });
    }),
  );
  return sums[0] !== null && sums[0] === sums[1];
}

/**
 * Returns a key for the checksums of one copy; no partial file can be made to match a key that did not exist yet. Deno
 * computes a wrong GMAC of several blocks, so copies there use SHA-256.
 */
function newGmacKey(): Uint8Array | undefined {
  return IS_DENO ? undefined : crypto.getRandomValues(new Uint8Array(16));
}

/** Reports whether the file handle is lost: it ends with its connection, and the next connection does not know it. */
export function isStaleHandle(error: unknown): boolean {
  if (!(error instanceof ExecServerError)) return false;
  return error.code === "DISCONNECTED" || isUnknownFileHandle(error);
}

/** Waits for the next connection after a loss; rejects if there will be none. */
export async function whenConnected(files: RemoteFiles, signal: AbortSignal | undefined): Promise<void> {
  await files.exists("/", { signal });
}

export function systemErrorCode(error: unknown): string | null {
  return error instanceof ExecServerError ? error.code : null;
}
