import type { FileHandle } from "node:fs/promises";
import { constants, copyFile, link, open, stat, unlink } from "node:fs/promises";
import { invalidRequest } from "../protocol/errors.ts";
import { besidePath } from "./beside-path.ts";
import { displayPath, type NativePath } from "./native-path.ts";
import { errnoName } from "./os-error.ts";
import { MAX_READ_FILE_BYTES, NEW_FILE_MODE, OPEN_TO_WRITE, openRegular } from "./read-write.ts";

/** Copied with one call of the system: large enough to be fast, small enough to let others have the thread in between. */
const BLOCK_BYTES = 1024 * 1024;

/** Of a mode, what can be given to another file. */
const MODE_BITS = 0o7777;

const REFUSAL = "fs/copy only supports regular files, directories, and symlinks";
export const unsupportedKind = () => invalidRequest(REFUSAL);

/**
 * Copies a regular file over whatever file is there. Node's own copy asks the system to send as many bytes as the file had
 * when it began, again and again: when the file has become shorter, for ever, on one of a few threads. Here a copy ends
 * where the file ends, holds no thread for longer than a block, and waits for no pipe, whatever takes a path's place.
 */
export async function copyRegularFile(source: NativePath, destination: NativePath): Promise<void> {
  // Checked before it is opened, so that no device is opened, and again after, for a change in between.
  const there = await stat(destination).catch((error: unknown) => {
    if (errnoName(error) === "ENOENT") return null;
    throw error;
  });
  if (there !== null && !there.isFile() && !there.isDirectory()) throw unsupportedKind();
  await using from = await openRegular(source, 0, REFUSAL);
  if (there === null && (await cloned(from, destination))) return;
  const wanted = await from.stat();
  await using to = await open(destination, OPEN_TO_WRITE, wanted.mode & NEW_FILE_MODE);
  const found = await to.stat();
  if (!found.isFile()) throw unsupportedKind();
  // A file copied onto itself stays.
  if (found.dev === wanted.dev && found.ino === wanted.ino) return;
  await to.truncate();
  await to.chmod(wanted.mode & MODE_BITS);
  await copyBytes(from, to, wanted.size, source);
}

/**
 * Lets a file system that can share blocks do so; true when it did. It makes the file only if nothing is there. Under a
 * name of its own at first: Node removes what it could not copy by its path, where something else may be by then.
 */
async function cloned(from: FileHandle, destination: NativePath): Promise<boolean> {
  if (process.platform !== "linux") return false;
  const beside = besidePath(destination);
  try {
    // By its descriptor: what has the path now may be a pipe.
    await copyFile(
      `/proc/self/fd/${from.fd}`,
      beside,
      constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE_FORCE,
    );
  } catch {
    // Most file systems cannot; and what else is wrong shows when the bytes are copied.
    return false;
  }
  const isThere = await link(beside, destination).then(
    () => true,
    () => false,
  );
  await unlink(beside);
  return isThere;
}

/** What the file had when it was opened; of one that does not tell its size, as those below /proc, what it gives. */
async function copyBytes(from: FileHandle, to: FileHandle, size: number, source: NativePath): Promise<void> {
  const most = size > 0 ? size : MAX_READ_FILE_BYTES;
  const block = Buffer.allocUnsafe(Math.min(BLOCK_BYTES, most));
  for (let copied = 0; ; ) {
    const { bytesRead } = await from.read(block, 0, Math.min(block.length, most - copied), null);
    if (bytesRead === 0) return;
    await to.writeFile(block.subarray(0, bytesRead));
    copied += bytesRead;
    if (copied < most) continue;
    if (size > 0) return;
    throw invalidRequest(
      `file \`${displayPath(source)}\` is too large to copy: its size is not known, and then at most ${most} bytes are copied`,
    );
  }
}
