import { constants, type FileHandle, open, stat } from "node:fs/promises";
import { freeBuffer } from "../base/free-buffer.ts";
import { invalidRequest } from "../protocol/errors.ts";
import type { OpenedFile, ReadFileParams, WriteFileParams } from "./file-system.ts";
import { displayPath, type NativePath, nativePathFromUri } from "./native-path.ts";
import { withNoFollow } from "./open-no-follow.ts";
import { withOsErrors } from "./os-error.ts";

/** The protocol's limit of a file that is returned in one message. */
export const MAX_READ_FILE_BYTES = 512 * 1024 * 1024;

/** Bytes per part. A multiple of three, so that the base64 of the parts concatenates without padding. */
const PART_BYTES = 240 * 1024;

/** Bytes per read from a file without a size, such as those below /proc. */
const UNSIZED_BLOCK_BYTES = 64 * 1024;

export async function readFile(
  params: ReadFileParams,
  { maxBytes }: { maxBytes?: number } = {},
): Promise<{ data: Uint8Array }> {
  const file = await openFile(params, maxBytes);
  try {
    return { data: await file.readAll() };
  } finally {
    await file.close();
  }
}

export async function openFile(params: ReadFileParams, maxBytes = MAX_READ_FILE_BYTES): Promise<OpenedFile> {
  const path = nativePathFromUri(params.path);
  return await withOsErrors(async () => {
    const file =
      params.followSymlinks === false
        ? await withNoFollow(path, (safePath) =>
            openRegular(safePath, constants.O_NOFOLLOW, "path is not a regular file"),
          )
        : await openForRead(path);
    try {
      return new LocalFile(file, requireSize((await file.stat()).size, maxBytes), maxBytes);
    } catch (error) {
      await file.close();
      throw error;
    }
  });
}

/** Opens a regular file only: opening a device may have effects, and a pipe may block. */
export async function openForRead(path: NativePath): Promise<FileHandle> {
  const refusal = `path \`${displayPath(path)}\` is not a file`;
  // Checked before the open, so that no device is opened, and again afterwards, in case the path changed.
  if (!(await stat(path)).isFile()) throw invalidRequest(refusal);
  return await openRegular(path, 0, refusal);
}

export async function writeFile(params: WriteFileParams): Promise<void> {
  const path = nativePathFromUri(params.path);
  await withOsErrors(async () => {
    if (params.followSymlinks === false) {
      return await withNoFollow(path, async (safePath) => {
        await using file = await open(safePath, WRITE_FLAGS | constants.O_NOFOLLOW, NEW_FILE_MODE);
        if (!(await file.stat()).isFile()) throw invalidRequest("path is not a regular file");
        await file.truncate();
        await writeBytes(file, params.data);
      });
    }
    await using file = await open(path, WRITE_FLAGS | constants.O_TRUNC, NEW_FILE_MODE);
    const found = await file.stat();
    // A device such as /dev/null accepts the data; a pipe could block forever.
    if (!found.isFile() && !found.isCharacterDevice()) {
      throw invalidRequest(`path \`${displayPath(path)}\` is not a file`);
    }
    await writeBytes(file, params.data);
  });
}

/** Mode of new files, before the umask. */
export const NEW_FILE_MODE = 0o644;

/** Opening a pipe without a reader fails with ENXIO instead of blocking. O_NOCTTY: gets no controlling terminal. */
export const WRITE_FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_NONBLOCK | constants.O_NOCTTY;
const OPEN_TO_READ = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/** Opens without blocking and rejects everything except a regular file. */
export async function openRegular(path: NativePath, flags: number, refusal: string): Promise<FileHandle> {
  return requireRegular(await open(path, OPEN_TO_READ | flags), refusal);
}

/** Closes and rejects a file that is not a regular file. */
export async function requireRegular(file: FileHandle, refusal: string): Promise<FileHandle> {
  try {
    if (!(await file.stat()).isFile()) throw invalidRequest(refusal);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

function requireSize(bytes: number, maxBytes: number): number {
  if (bytes > maxBytes) throw invalidRequest(`file is too large to read: limit is ${maxBytes} bytes`);
  return bytes;
}

class LocalFile implements OpenedFile {
  readonly size: number;
  readonly #file: FileHandle;
  readonly #maxBytes: number;
  #remainingBytes: number;
  /** Two buffers: one is sent while the other is filled. */
  #buffers: Buffer[] = [];
  #reading: Promise<Uint8Array> | null = null;
  #isClosed = false;

  constructor(file: FileHandle, size: number, maxBytes: number) {
    this.#file = file;
    this.size = size;
    this.#maxBytes = maxBytes;
    this.#remainingBytes = size;
  }

  readAll(): Promise<Uint8Array> {
    return withOsErrors(() => this.#readAll());
  }

  async #readAll(): Promise<Uint8Array> {
    const { size } = this;
    const blocks: Buffer[] = [];
    let total = 0;
    for (;;) {
      // One byte more than the size, so that the first short read ends a file that did not grow.
      const blockBytes = total === 0 && size > 0 ? size + 1 : UNSIZED_BLOCK_BYTES;
      const block = Buffer.allocUnsafe(blockBytes);
      const { bytesRead } = await this.#file.read(block, 0, blockBytes, null);
      total = requireSize(total + bytesRead, this.#maxBytes);
      if (bytesRead > 0) blocks.push(block.subarray(0, bytesRead));
      if (bytesRead === 0 || (size > 0 && total === size && bytesRead < blockBytes)) break;
    }
    const [first] = blocks;
    return blocks.length === 1 && first !== undefined ? first : Buffer.concat(blocks, total);
  }

  async next(): Promise<Uint8Array> {
    this.#reading ??= this.#readPart();
    const part = await this.#reading;
    // `close` waits for one read only, and then frees the buffers.
    if (this.#isClosed) return new Uint8Array(0);
    this.#reading = this.#readPart();
    // Awaited by the next call or by `close`.
    this.#reading.catch(() => undefined);
    return part;
  }

  async #readPart(): Promise<Uint8Array> {
    const wanted = Math.min(this.#remainingBytes, PART_BYTES);
    if (wanted === 0) return new Uint8Array(0);
    const buffer = this.#buffers.length < 2 ? Buffer.allocUnsafeSlow(PART_BYTES) : (this.#buffers.shift() as Buffer);
    this.#buffers.push(buffer);
    let filled = 0;
    while (filled < wanted) {
      const { bytesRead } = await this.#file.read(buffer, filled, wanted - filled, null);
      // The file was truncated.
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    this.#remainingBytes = filled < wanted ? 0 : this.#remainingBytes - filled;
    return buffer.subarray(0, filled);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#reading?.catch(() => undefined);
    for (const buffer of this.#buffers.splice(0)) freeBuffer(buffer);
    await this.#file.close();
  }
}

/**
 * Maximum bytes per system call. For a longer write, ext4 allocates memory in larger units, which a virtual machine may
 * first have to get from its host: 1 GiB in writes of 1 MiB takes more than twice as long.
 */
const MAX_WRITE_BYTES = 128 * 1024;

/** Writes all bytes at the position of the file. */
export async function writeBytes(file: FileHandle, bytes: Uint8Array): Promise<void> {
  await writeRange(file, bytes, 0, bytes.length, null);
}

/** Writes all bytes at `position`, on several threads. If a write fails, the others end before this function rejects. */
export async function writeBytesAt(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  const writes: Promise<void>[] = [];
  for (let from = 0; from < bytes.length; from += MAX_WRITE_BYTES)
    writes.push(writeRange(file, bytes, from, Math.min(from + MAX_WRITE_BYTES, bytes.length), position));
  // The caller may free the bytes afterwards, so no write may still run.
  const failed = (await Promise.allSettled(writes)).find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
}

/** Writes the bytes from `from` to `to`. `position` is that of the first of all bytes, or null for that of the file. */
async function writeRange(file: FileHandle, bytes: Uint8Array, from: number, to: number, position: number | null) {
  for (let at = from; at < to; ) {
    const length = Math.min(to - at, MAX_WRITE_BYTES);
    at += (await file.write(bytes, at, length, position === null ? null : position + at)).bytesWritten;
  }
}
