import { constants, type FileHandle, open, stat } from "node:fs/promises";
import { invalidRequest } from "../protocol/errors.ts";
import type { ReadFileParams, WriteFileParams } from "./file-system.ts";
import { displayPath, type NativePath, nativePathFromUri } from "./native-path.ts";
import { withNoFollow } from "./open-no-follow.ts";
import { withOsErrors } from "./os-error.ts";

/** The protocol's limit of a file that is returned in one message. */
export const MAX_READ_FILE_BYTES = 512 * 1024 * 1024;

/** Bytes per read from a file without a size, such as those below /proc. */
const UNSIZED_BLOCK_BYTES = 64 * 1024;

interface ReadOptions {
  maxBytes?: number | undefined;
  /** Awaited with the file's size before the first read. */
  admit?: ((bytes: number) => Promise<void>) | undefined;
}

export async function readFile(params: ReadFileParams, options: ReadOptions = {}): Promise<{ data: Uint8Array }> {
  const path = nativePathFromUri(params.path);
  return await withOsErrors(async () => {
    if (params.followSymlinks === false) {
      return await withNoFollow(path, async (safePath) => {
        await using file = await openRegular(safePath, constants.O_NOFOLLOW, "path is not a regular file");
        return { data: await readAll(file, options) };
      });
    }
    await using file = await openForRead(path);
    return { data: await readAll(file, options) };
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
        await file.writeFile(params.data);
      });
    }
    await using file = await open(path, WRITE_FLAGS | constants.O_TRUNC, NEW_FILE_MODE);
    const found = await file.stat();
    // A device such as /dev/null accepts the data; a pipe could block forever.
    if (!found.isFile() && !found.isCharacterDevice()) {
      throw invalidRequest(`path \`${displayPath(path)}\` is not a file`);
    }
    await file.writeFile(params.data);
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

async function readAll(file: FileHandle, { maxBytes = MAX_READ_FILE_BYTES, admit }: ReadOptions): Promise<Uint8Array> {
  const tooLarge = () => invalidRequest(`file is too large to read: limit is ${maxBytes} bytes`);
  const { size } = await file.stat();
  if (size > maxBytes) throw tooLarge();
  await admit?.(size);
  const blocks: Buffer[] = [];
  let total = 0;
  for (;;) {
    // One byte more than the size, so that the first short read ends a file that did not grow.
    const blockBytes = total === 0 && size > 0 ? size + 1 : UNSIZED_BLOCK_BYTES;
    const block = Buffer.allocUnsafe(blockBytes);
    const { bytesRead } = await file.read(block, 0, blockBytes, null);
    total += bytesRead;
    if (total > maxBytes) throw tooLarge();
    if (bytesRead > 0) blocks.push(block.subarray(0, bytesRead));
    if (bytesRead === 0 || (size > 0 && total === size && bytesRead < blockBytes)) break;
  }
  const [first] = blocks;
  return blocks.length === 1 && first !== undefined ? first : Buffer.concat(blocks, total);
}
