import type { FileHandle } from "node:fs/promises";
import { constants, open, stat } from "node:fs/promises";
import { invalidRequest } from "../protocol/errors.ts";
import type { ReadFileParams, WriteFileParams } from "./file-system.ts";
import { displayPath, type NativePath, nativePathFromUri } from "./native-path.ts";
import { withoutFollowing } from "./no-follow.ts";
import { answeringOsErrors } from "./os-error.ts";

/** The protocol's limit for a file that is answered in one message. */
export const MAX_READ_FILE_BYTES = 512 * 1024 * 1024;

/** How much is read at a time from a file that does not tell its size, as those below /proc. */
const UNSIZED_BLOCK_BYTES = 64 * 1024;

interface ReadOptions {
  maxBytes?: number | undefined;
  /** Asked with the size before anything is read. */
  admit?: ((bytes: number) => Promise<void>) | undefined;
}

export async function readFile(
  params: ReadFileParams,
  options: ReadOptions = {},
): Promise<{ data: Uint8Array }> {
  const path = nativePathFromUri(params.path);
  return await answeringOsErrors(async () => {
    if (params.followSymlinks === false) {
      return await withoutFollowing(path, {}, async (safePath) => {
        await using file = await openRegular(safePath, constants.O_NOFOLLOW, "path is not a regular file");
        return { data: await readAll(file, options) };
      });
    }
    await using file = await openToRead(path);
    return { data: await readAll(file, options) };
  });
}

/** Opens a regular file and nothing else: a device may act on being opened, and a pipe may never answer. */
export async function openToRead(path: NativePath): Promise<FileHandle> {
  const refusal = `path \`${displayPath(path)}\` is not a file`;
  // Checked before it is opened, so that no device is opened, and again after, for a change in between.
  if (!(await stat(path)).isFile()) throw invalidRequest(refusal);
  return await openRegular(path, 0, refusal);
}

export async function writeFile(params: WriteFileParams): Promise<void> {
  const path = nativePathFromUri(params.path);
  await answeringOsErrors(async () => {
    if (params.followSymlinks === false) {
      return await withoutFollowing(path, {}, async (safePath) => {
        await using file = await open(safePath, OPEN_TO_WRITE | constants.O_NOFOLLOW, NEW_FILE_MODE);
        if (!(await file.stat()).isFile()) throw invalidRequest("path is not a regular file");
        await file.truncate();
        await file.writeFile(params.data);
      });
    }
    await using file = await open(path, OPEN_TO_WRITE | constants.O_TRUNC, NEW_FILE_MODE);
    const found = await file.stat();
    // A device such as /dev/null takes what it is given; a pipe could hold the call for ever.
    if (!found.isFile() && !found.isCharacterDevice()) {
      throw invalidRequest(`path \`${displayPath(path)}\` is not a file`);
    }
    await file.writeFile(params.data);
  });
}

/** Before the umask. */
export const NEW_FILE_MODE = 0o644;

/** Never waits for the other end of a pipe: there it fails with ENXIO. No terminal becomes this program's own. */
export const OPEN_TO_WRITE =
  constants.O_WRONLY | constants.O_CREAT | constants.O_NONBLOCK | constants.O_NOCTTY;
const OPEN_TO_READ = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/** Opens without waiting, whatever is there, and keeps it only if it is a regular file. */
export async function openRegular(path: NativePath, flags: number, refusal: string): Promise<FileHandle> {
  return keepRegular(await open(path, OPEN_TO_READ | flags), refusal);
}

/** Closes again what turns out to be no regular file. */
export async function keepRegular(file: FileHandle, refusal: string): Promise<FileHandle> {
  try {
    if (!(await file.stat()).isFile()) throw invalidRequest(refusal);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function readAll(
  file: FileHandle,
  { maxBytes = MAX_READ_FILE_BYTES, admit }: ReadOptions,
): Promise<Uint8Array> {
  const tooLarge = () => invalidRequest(`file is too large to read: limit is ${maxBytes} bytes`);
  const { size } = await file.stat();
  if (size > maxBytes) throw tooLarge();
  await admit?.(size);
  const blocks: Buffer[] = [];
  let total = 0;
  for (;;) {
    // One byte more than the size, so that a file that did not grow ends with the first short read.
    const room = total === 0 && size > 0 ? size + 1 : UNSIZED_BLOCK_BYTES;
    const block = Buffer.allocUnsafe(room);
    const { bytesRead } = await file.read(block, 0, room, null);
    total += bytesRead;
    if (total > maxBytes) throw tooLarge();
    if (bytesRead > 0) blocks.push(block.subarray(0, bytesRead));
    if (bytesRead === 0 || (size > 0 && total === size && bytesRead < room)) break;
  }
  const [only] = blocks;
  return blocks.length === 1 && only !== undefined ? only : Buffer.concat(blocks, total);
}
