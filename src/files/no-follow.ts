import type { FileHandle } from "node:fs/promises";
import { constants, lstat, mkdir, open } from "node:fs/promises";
import { joinNative, type NativePath, pathNames } from "./native-path.ts";
import { errnoName } from "./os-error.ts";

/**
 * Reaches a path without passing through any symbolic link on the way, and hands `work` a path that cannot be bent
 * afterwards: each directory is opened by name inside the one before and addressed through its descriptor, so a link
 * put in place in between is refused, not followed. The last name is for `work` to treat with care.
 *
 * A link on the way is ENOTDIR, as the system tells it. Without /proc the names are looked at one by one, which
 * leaves a window between the look and the use.
 */
export async function withoutFollowing<T>(
  path: NativePath,
  options: { makeParents?: boolean },
  work: (safePath: NativePath) => Promise<T>,
): Promise<T> {
  const names = pathNames(path);
  const last = names.pop();
  if (last === undefined) return work("/");
  if (process.platform !== "linux") return withoutFollowingByLooking(names, last, options, work);

  let directory = await open("/", DIRECTORY_ONLY);
  try {
    for (const name of names) {
      const below = await openBelow(directory, name, options.makeParents === true);
      const above = directory;
      directory = below;
      await above.close();
    }
    return await work(joinNative(descriptorPath(directory), last));
  } finally {
    await directory.close();
  }
}

/** Linux's flag for a descriptor that only names a place; it needs no right to read the directory. */
const O_PATH = 0o10000000;
const DIRECTORY_ONLY = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;

async function openBelow(directory: FileHandle, name: NativePath, make: boolean): Promise<FileHandle> {
  const path = joinNative(descriptorPath(directory), name);
  try {
    return await open(path, DIRECTORY_ONLY);
  } catch (error) {
    if (!make || errnoName(error) !== "ENOENT") throw error;
  }
  await mkdir(path).catch((error: unknown) => {
    // It appeared meanwhile; the open below judges what is there now.
    if (errnoName(error) !== "EEXIST") throw error;
  });
  return await open(path, DIRECTORY_ONLY);
}

function descriptorPath(handle: FileHandle): string {
  return `/proc/self/fd/${handle.fd}`;
}

async function withoutFollowingByLooking<T>(
  names: NativePath[],
  last: NativePath,
  options: { makeParents?: boolean },
  work: (path: NativePath) => Promise<T>,
): Promise<T> {
  let directory: NativePath = "/";
  for (const name of names) {
    directory = joinNative(directory, name);
    const found = await lstat(directory).catch(async (error: unknown) => {
      if (!options.makeParents || errnoName(error) !== "ENOENT") throw error;
      await mkdir(directory);
      return lstat(directory);
    });
    if (!found.isDirectory()) throw Object.assign(new Error("ENOTDIR: not a directory"), { code: "ENOTDIR" });
  }
  return work(joinNative(directory, last));
}
