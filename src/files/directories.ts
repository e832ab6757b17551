import type { Dirent } from "node:fs";
import { lstat, mkdir, opendir, stat } from "node:fs/promises";
import { mapInSlices } from "../async/slices.ts";
import { internalError } from "../protocol/errors.ts";
import type { CreateDirectoryParams, DirectoryEntry } from "./file-system.ts";
import type { FileTrees, ListedEntry, Listing } from "./file-trees.ts";
import { displayPath, joinNative, type NativePath, nativeFromLatin1, nativePathFromUri } from "./native-path.ts";
import { withNoFollow } from "./open-no-follow.ts";
import { errnoNameOf, withOsErrors } from "./os-error.ts";

/** The protocol's limit of one listing; a larger directory is rejected, not truncated. */
export const MAX_DIRECTORY_ENTRIES = 50_000;

export async function createDirectory(params: CreateDirectoryParams): Promise<void> {
  const path = nativePathFromUri(params.path);
  const recursive = params.recursive ?? true;
  await withOsErrors(async () => {
    if (params.followSymlinks === false) {
      return await withNoFollow(
        path,
        (safePath) => (recursive ? makeUnlessDirectory(safePath, lstat, "ENOTDIR") : mkdir(safePath)),
        { makeParents: recursive },
      );
    }
    if (!recursive) return await mkdir(path);
    try {
      await mkdir(path, { recursive: true });
    } catch (error) {
      // Node reports a broken link as a missing file, although the path itself exists.
      if (errnoNameOf(error) !== "ENOENT") throw error;
      await makeUnlessDirectory(path, stat, "EEXIST");
    }
  });
}

export async function readDirectory(
  params: { path: string },
  maxEntries = MAX_DIRECTORY_ENTRIES,
  list: FileTrees["list"] = listDirectory,
): Promise<{ entries: DirectoryEntry[] }> {
  const path = nativePathFromUri(params.path);
  return await withOsErrors(async () => {
    const listing = await list(path, maxEntries);
    if (listing.truncated) {
      throw internalError(`fs/readDirectory returned ${maxEntries + 1} entries; limit is ${maxEntries}`);
    }
    const describe = ({ name, kind }: ListedEntry) => ({
      fileName: displayPath(name),
      isDirectory: kind === "directory",
      isFile: kind === "file",
    });
    return { entries: await mapInSlices(listing.entries, describe) };
  });
}

/** Lists a directory without the addon. */
export async function listDirectory(path: NativePath, maxEntries: number): Promise<Listing> {
  const found: Dirent[] = [];
  let truncated = false;
  const directory = await opendir(path, { encoding: "latin1", bufferSize: READ_AHEAD_ENTRIES });
  for await (const entry of directory) {
    if (found.length === maxEntries) {
      truncated = true;
      break;
    }
    found.push(entry);
  }
  return { entries: await lookUp(found, (entry) => resolveEntry(path, entry)), truncated };
}

/** Looks up the entries of a directory in batches. Omits entries whose lookup returns null. */
export async function lookUp<T, R>(entries: readonly T[], lookUpOne: (entry: T) => Promise<R | null>): Promise<R[]> {
  const found: R[] = [];
  for (let at = 0; at < entries.length; at += LOOKUPS_AT_ONCE) {
    const batch = await Promise.all(entries.slice(at, at + LOOKUPS_AT_ONCE).map(lookUpOne));
    for (const one of batch) if (one !== null) found.push(one);
  }
  return found;
}

/** Entries read per system call. */
const READ_AHEAD_ENTRIES = 512;
/** Keeps Node's few file threads busy without one promise per name of a large directory. */
const LOOKUPS_AT_ONCE = 64;

async function resolveEntry(directory: NativePath, entry: Dirent): Promise<ListedEntry | null> {
  const name = nativeFromLatin1(entry.name);
  const base = { sortKey: entry.name, name };
  if (entry.isFile()) return { ...base, kind: "file", isSymlink: false };
  if (entry.isDirectory()) return { ...base, kind: "directory", isSymlink: false };
  if (entry.isFIFO() || entry.isSocket() || entry.isBlockDevice() || entry.isCharacterDevice()) {
    return { ...base, kind: "other", isSymlink: false };
  }
  // A link, or a file system that does not report the kind of its entries.
  const path = joinNative(directory, name);
  try {
    const isSymlink = entry.isSymbolicLink() || (await lstat(path)).isSymbolicLink();
    const target = await stat(path);
    const kind = target.isFile() ? "file" : target.isDirectory() ? "directory" : "other";
    return { ...base, kind, isSymlink };
  } catch (error) {
    if (errnoNameOf(error) === null) throw error;
    return null;
  }
}

/** Creates a directory. Rejects with `errorCode` if the path is something else; `status` decides whether links count. */
export async function makeUnlessDirectory(
  path: NativePath,
  status: (path: NativePath) => Promise<{ isDirectory(): boolean }>,
  errorCode: "EEXIST" | "ENOTDIR",
): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    if (errnoNameOf(error) !== "EEXIST") throw error;
    const isDirectory = await status(path).then(
      (found) => found.isDirectory(),
      () => false,
    );
    if (!isDirectory) throw Object.assign(new Error(`${errorCode}: not a directory`), { code: errorCode });
  }
}
