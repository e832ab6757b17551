import { randomUuid } from "../../base/random-uuid.ts";
import { MAX_BLOCK_BYTES } from "../../protocol/file-schemas.ts";
import type { RemoteFile } from "../files/remote-file.ts";
import { isStaleHandle, MAX_BLOCKS_IN_FLIGHT, whenConnected } from "./block-copy.ts";
import type { CopyEndpoint } from "./copy-types.ts";
import { partialFilePath } from "./partial-file-name.ts";

/** A running hash, such as `createHash("sha256")` of node:crypto. */
export interface StreamDigest {
  update(chunk: Uint8Array): unknown;
  digest(encoding: "hex"): string;
}

export interface StreamToFileOptions {
  signal?: AbortSignal | undefined;
  digest: StreamDigest;
}

/**
 * Writes a stream to a file, which appears once all bytes have arrived with the right SHA-256. Blocks without a
 * confirmed write are buffered and sent again after a lost connection. A failure leaves no file, because a stream
 * cannot be read again.
 */
export async function copyStreamToFile(
  chunks: AsyncIterable<Uint8Array>,
  { files, path }: CopyEndpoint,
  { signal, digest }: StreamToFileOptions,
): Promise<number> {
  const partialPath = partialFilePath(path, { path: randomUuid(), size: 0, modifiedAtMs: 0 });
  let size = 0;
  /** Blocks without a confirmed write, in order; they may have to be sent again. */
  const unconfirmed: { at: number; chunk: Uint8Array; written: Promise<void> }[] = [];
  let partial: RemoteFile | null = null;

  const send = (file: RemoteFile, at: number, chunk: Uint8Array) => {
    const written = file.write(at, chunk, { signal });
    // `awaitWrites` awaits it later and handles a rejection there.
    written.catch(() => undefined);
    return written;
  };
  /** Reopens the file on the next connection and sends all unconfirmed blocks again. */
  const resume = async (error: unknown): Promise<void> => {
    if (!isStaleHandle(error)) throw error;
    await whenConnected(files, signal);
    try {
      partial = (await files.openPartial(partialPath, { signal })).file;
    } catch (failure) {
      return resume(failure);
    }
    for (const block of unconfirmed) block.written = send(partial, block.at, block.chunk);
  };
  const awaitWrites = async (maxUnconfirmed: number): Promise<void> => {
    for (let block = unconfirmed[0]; block && unconfirmed.length > maxUnconfirmed; block = unconfirmed[0]) {
      try {
        await block.written;
        unconfirmed.shift();
      } catch (error) {
        await resume(error);
      }
    }
  };

  try {
    partial = (await files.openPartial(partialPath, { signal })).file;
    for await (const chunk of splitIntoBlocks(chunks)) {
      digest.update(chunk);
      await awaitWrites(MAX_BLOCKS_IN_FLIGHT - 1);
      unconfirmed.push({ at: size, chunk, written: send(partial, size, chunk) });
      size += chunk.length;
    }
    const sha256 = digest.digest("hex");
    for (;;) {
      await awaitWrites(0);
      try {
        await partial.commit(path, { size, digest: sha256 }, { signal });
        return size;
      } catch (error) {
        if (!isStaleHandle(error)) throw error;
        await whenConnected(files, signal);
        // Only the result was lost: the partial file has become the file.
        if (!(await files.exists(partialPath, { signal }))) return size;
        await resume(error);
      }
    }
  } catch (error) {
    await partial?.close().catch(() => undefined);
    await files.remove(partialPath).catch(() => undefined);
    throw error;
  }
}

/** Yields a file's bytes up to the size it had when opened, across lost connections. */
export async function* readFileBlocks(
  { files, path }: CopyEndpoint,
  { signal }: { signal?: AbortSignal | undefined } = {},
): AsyncGenerator<Uint8Array> {
  const { self } = await files.scan(path, { signal });
  // Files below /proc report size 0.
  if (self.size === 0) yield await files.readFile(path, { signal });
  let at = 0;
  while (at < self.size) {
    try {
      await using file = await files.open(path, "read", { signal });
      const reads: ReturnType<RemoteFile["read"]>[] = [];
      let nextOffset = at;
      while (at < self.size) {
        while (reads.length < MAX_BLOCKS_IN_FLIGHT && nextOffset < self.size) {
          const read = file.read(nextOffset, Math.min(MAX_BLOCK_BYTES, self.size - nextOffset), { signal });
          read.catch(() => undefined);
          reads.push(read);
          nextOffset += MAX_BLOCK_BYTES;
        }
        const block = await reads.shift();
        if (!block || block.chunk.length === 0) throw new Error("the file became shorter while it was copied");
        yield block.chunk;
        at += block.chunk.length;
      }
    } catch (error) {
      if (!isStaleHandle(error)) throw error;
      await whenConnected(files, signal);
      const now = (await files.scan(path, { signal })).self;
      if (now.size !== self.size || now.modifiedAtMs !== self.modifiedAtMs)
        throw new Error("the file changed while it was copied; copy it again", { cause: error });
    }
  }
}

/** Splits chunks into pieces of at most one block. */
async function* splitIntoBlocks(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks)
    for (let at = 0; at < chunk.length; at += MAX_BLOCK_BYTES) yield chunk.subarray(at, at + MAX_BLOCK_BYTES);
}
