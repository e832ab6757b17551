import { randomId } from "../../base/random-uuid.ts";
import type { RemoteFile } from "../files/remote-file.ts";
import { BLOCK_BYTES, BLOCKS_AT_ONCE, type FilePlace, isLostHandle, untilConnected } from "./block-copy.ts";
import { partPath } from "./partial-file-name.ts";

/** Counts what goes by: `createHash("sha256")` of node:crypto is one. */
export interface StreamDigest {
  update(chunk: Uint8Array): unknown;
  digest(encoding: "hex"): string;
}

export interface StreamToFileOptions {
  signal?: AbortSignal | undefined;
  digest: StreamDigest;
  mode?: number | undefined;
  onBytes?: ((count: number) => void) | undefined;
}

/**
 * Writes a stream to a file, which appears when all of it has arrived and has the SHA-256 of what was sent. What is not yet
 * known to be written is kept here and sent again after a loss. A failure leaves nothing, since a stream cannot be asked again.
 */
export async function copyStreamToFile(
  chunks: AsyncIterable<Uint8Array>,
  { files, path }: FilePlace,
  { signal, digest, mode, onBytes }: StreamToFileOptions,
): Promise<number> {
  const partName = partPath(path, { path: randomId(), size: 0, modifiedAtMs: 0 });
  let size = 0;
  /** Blocks that may have to be sent again, in order. */
  const unsure: { at: number; chunk: Uint8Array; written: Promise<void> }[] = [];
  let part: RemoteFile | null = null;

  const send = (file: RemoteFile, at: number, chunk: Uint8Array) => {
    const written = file.write(at, chunk, { signal });
    // Looked at in its turn.
    written.catch(() => undefined);
    return written;
  };
  /** On the next connection, everything that is not known to be written once more. */
  const again = async (error: unknown): Promise<void> => {
    if (!isLostHandle(error)) throw error;
    await untilConnected(files, signal);
    try {
      part = (await files.openPart(partName, { signal })).file;
    } catch (failure) {
      return again(failure);
    }
    for (const block of unsure) block.written = send(part, block.at, block.chunk);
  };
  const settle = async (most: number): Promise<void> => {
    for (let block = unsure[0]; block && unsure.length > most; block = unsure[0]) {
      try {
        await block.written;
        unsure.shift();
        onBytes?.(block.chunk.length);
      } catch (error) {
        await again(error);
      }
    }
  };

  try {
    part = (await files.openPart(partName, { signal })).file;
    for await (const chunk of blocksOf(chunks)) {
      digest.update(chunk);
      await settle(BLOCKS_AT_ONCE - 1);
      unsure.push({ at: size, chunk, written: send(part, size, chunk) });
      size += chunk.length;
    }
    const sha256 = digest.digest("hex");
    for (;;) {
      await settle(0);
      try {
        await part.commit(path, { size, sha256, mode }, { signal });
        return size;
      } catch (error) {
        if (!isLostHandle(error)) throw error;
        await untilConnected(files, signal);
        // The answer was lost, not the end: the part has become the file.
        if (!(await files.exists(partName, { signal }))) return size;
        await again(error);
      }
    }
  } catch (error) {
    await files.remove(partName).catch(() => undefined);
    throw error;
  }
}

/** A file's bytes from the beginning to the end it had when it was opened, across lost connections. */
export async function* fileBlocks(
  { files, path }: FilePlace,
  { signal }: { signal?: AbortSignal | undefined } = {},
): AsyncGenerator<Uint8Array> {
  const { self } = await files.scan(path, { signal });
  // Those below /proc do not tell their size.
  if (self.size === 0) yield await files.readFile(path, { signal });
  let at = 0;
  while (at < self.size) {
    try {
      await using file = await files.open(path, "read", { signal });
      const reads: ReturnType<RemoteFile["read"]>[] = [];
      let asked = at;
      while (at < self.size) {
        while (reads.length < BLOCKS_AT_ONCE && asked < self.size) {
          const read = file.read(asked, Math.min(BLOCK_BYTES, self.size - asked), { signal });
          read.catch(() => undefined);
          reads.push(read);
          asked += BLOCK_BYTES;
        }
        const block = await reads.shift();
        if (!block || block.chunk.length === 0)
          throw new Error("the file became shorter while it was copied");
        yield block.chunk;
        at += block.chunk.length;
      }
    } catch (error) {
      if (!isLostHandle(error)) throw error;
      await untilConnected(files, signal);
      const now = (await files.scan(path, { signal })).self;
      if (now.size !== self.size || now.modifiedAtMs !== self.modifiedAtMs)
        throw new Error("the file changed while it was copied; copy it again", { cause: error });
    }
  }
}

/** The same bytes in pieces of at most a block, as many at once as there are. */
async function* blocksOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks)
    for (let at = 0; at < chunk.length; at += BLOCK_BYTES) yield chunk.subarray(at, at + BLOCK_BYTES);
}
