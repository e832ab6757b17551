import { constants, copyFile, type FileHandle, link, open, stat, unlink } from "node:fs/promises";
import { nullIfMissing } from "../base/error-code.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { displayPath, type NativePath, siblingPath } from "./native-path.ts";
import { MAX_READ_FILE_BYTES, NEW_FILE_MODE, openRegular, WRITE_FLAGS, writeBytes } from "./read-write.ts";

/** Bytes per copy call: large enough to be fast, small enough not to occupy a file thread for long. */
const BLOCK_BYTES = 1024 * 1024;

/** The bits of a mode that can be applied to another file. */
const MODE_BITS = 0o7777;

const REFUSAL = "fs/copy only supports regular files, directories, and symlinks";
export const unsupportedKind = () => invalidRequest(REFUSAL);

export const unsizedTooLarge = (source: NativePath) =>
  invalidRequest(`copy \`${displayPath(source)}\`: file of unknown size exceeds ${MAX_READ_FILE_BYTES} bytes`);

/**
 * Copies a regular file over an existing file. Node's own copy requests as many bytes as the file had at the start; if the
 * file has shrunk, it loops forever on one of a few threads. This copy ends where the file ends, occupies a thread for at most
 * one block and never blocks on a pipe that replaces a path.
 */
export async function copyRegularFile(source: NativePath, destination: NativePath): Promise<void> {
  // Checked before the open, so that no device is opened, and again afterwards, in case the path changed.
  const existing = await stat(destination).catch(nullIfMissing);
  if (existing !== null && !existing.isFile() && !existing.isDirectory()) throw unsupportedKind();
  await using from = await openRegular(source, 0, REFUSAL);
  if (existing === null && (await tryClone(from, destination))) return;
  const wanted = await from.stat();
  await using to = await open(destination, WRITE_FLAGS, wanted.mode & NEW_FILE_MODE);
  const found = await to.stat();
  if (!found.isFile()) throw unsupportedKind();
  // Copying a file onto itself changes nothing.
  if (found.dev === wanted.dev && found.ino === wanted.ino) return;
  await to.truncate();
  await to.chmod(wanted.mode & MODE_BITS);
  await copyBytes(from, to, wanted.size, source);
}

/**
 * Clones the file if the file system can share blocks; returns true on success. Creates the destination only if it is
 * missing. It first uses a temporary name: after a failure Node removes the destination by path, which may be another file.
 */
async function tryClone(from: FileHandle, destination: NativePath): Promise<boolean> {
  if (process.platform !== "linux") return false;
  const sibling = siblingPath(destination);
  try {
    // Through the descriptor: the path may be a pipe by now.
    await copyFile(`/proc/self/fd/${from.fd}`, sibling, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE_FORCE);
  } catch {
    // Most file systems cannot clone. Other errors appear when the bytes are copied.
    return false;
  }
  const isLinked = await link(sibling, destination).then(
    () => true,
    () => false,
  );
  await unlink(sibling);
  return isLinked;
}

/** Copies the size at open time; a file without a size, such as those below /proc, is copied until its end. */
async function copyBytes(from: FileHandle, to: FileHandle, size: number, source: NativePath): Promise<void> {
  const limit = size > 0 ? size : MAX_READ_FILE_BYTES;
  const block = Buffer.allocUnsafe(Math.min(BLOCK_BYTES, limit));
  for (let copied = 0; ; ) {
    const { bytesRead } = await from.read(block, 0, Math.min(block.length, limit - copied), null);
    if (bytesRead === 0) return;
    await writeBytes(to, block.subarray(0, bytesRead));
    copied += bytesRead;
    if (copied < limit) continue;
    if (size > 0) return;
    throw unsizedTooLarge(source);
  }
}
