import { chmod, constants, type FileHandle, open, readdir, rename, rmdir, unlink } from "node:fs/promises";
import { sleep, systemClock } from "../async/clock.ts";
import { hasErrorCode } from "../base/error-code.ts";
import { randomUuid } from "../base/random-uuid.ts";

const { O_DIRECTORY, O_NOFOLLOW } = constants;
/** Linux flag that Node does not define. */
const O_PATH = 0o10000000;
/** Passes over a directory in which processes that are being killed still create entries. */
const MAX_PASSES = 20;
const PASS_INTERVAL_MS = 50;

/**
 * Removes a directory and its contents, also while sandboxed commands change them. Node's own removal lists a directory by
 * its path, so a command that replaces the directory by a link would choose the files that it deletes. This one opens each
 * directory without following links and reaches its entries through the descriptor. It moves nested directories up, so
 * that few descriptors suffice for every depth. Requires /proc.
 */
export async function removeTree(path: string): Promise<void> {
  {
    await using top = await openDirectory(path);
    const root = Buffer.from(descriptorPath(top));
    await chmod(root, WRITABLE);
    for (let pass = 1; !(await tryEmpty(root)) && pass < MAX_PASSES; pass++) await sleep(systemClock, PASS_INTERVAL_MS);
  }
  await rmdir(path);
}

const WRITABLE = 0o700;

/** Returns false if entries remain, for example because another process changes them. */
async function tryEmpty(root: Buffer): Promise<boolean> {
  const pending: Buffer[] = await readdir(root, { encoding: "buffer" });
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    try {
      pending.push(...(await removeEntry(root, name)));
    } catch {
      // The next pass tries it again.
    }
  }
  return (await readdir(root)).length === 0;
}

/** Removes an entry of the root. Returns the names in the root that its subdirectories got, unless they were empty. */
async function removeEntry(root: Buffer, name: Buffer): Promise<Buffer[]> {
  const entry = joinPath(root, name);
  if (await tryRemove(entry)) return [];
  const moved: Buffer[] = [];
  {
    await using directory = await openDirectory(entry);
    const opened = Buffer.from(descriptorPath(directory));
    // A command can remove its own permissions.
    await chmod(opened, WRITABLE);
    const children = (await readdir(opened, { encoding: "buffer" })).map((child) => joinPath(opened, child));
    const isRemoved = await Promise.all(children.map(tryRemove));
    for (const child of children.filter((_, at) => !isRemoved[at])) {
      await makeMovable(child);
      const newName = Buffer.from(randomUuid());
      await rename(child, joinPath(root, newName));
      moved.push(newName);
    }
  }
  await tryRemove(entry);
  return moved;
}

/** Removes a file, a link or an empty directory. Returns false for a directory with entries. */
async function tryRemove(path: Buffer): Promise<boolean> {
  try {
    await unlink(path);
    return true;
  } catch (error) {
    if (hasErrorCode(error, "ENOENT")) return true;
    if (!hasErrorCode(error, "EISDIR", "EPERM")) throw error;
  }
  try {
    await rmdir(path);
    return true;
  } catch (error) {
    if (hasErrorCode(error, "ENOENT")) return true;
    if (hasErrorCode(error, "ENOTEMPTY", "EEXIST")) return false;
    throw error;
  }
}

/** A move to another directory changes the entry `..`, which requires write permission. */
async function makeMovable(path: Buffer): Promise<void> {
  await using directory = await openDirectory(path);
  await chmod(descriptorPath(directory), WRITABLE);
}

/** Opens a directory unless it is a link. Needs no permission on it. */
function openDirectory(path: string | Buffer): Promise<FileHandle> {
  return open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
}

function descriptorPath({ fd }: FileHandle): string {
  return `/proc/self/fd/${fd}`;
}

function joinPath(directory: Buffer, name: Buffer): Buffer {
  return Buffer.concat([directory, Buffer.from("/"), name]);
}
