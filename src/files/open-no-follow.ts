import { existsSync } from "node:fs";
import { constants, type FileHandle, lstat, mkdir, open } from "node:fs/promises";
import { invalidRequest } from "../protocol/errors.ts";
import { joinNative, latin1Path, type NativePath, pathNames } from "./native-path.ts";
import { errnoNameOf } from "./os-error.ts";

/**
 * Opens the parent of a path without following symbolic links and calls `work` with a path through its descriptor.
 * Each directory is opened by name relative to the previous one, so a link that is inserted meanwhile is rejected. `work`
 * must not follow a link in the last name itself.
 *
 * A link in the path fails with ENOTDIR, the system's error. Without /proc each name is checked separately, which leaves a
 * window between the check and the use.
 */
export async function withNoFollow<T>(
  path: NativePath,
  work: (safePath: NativePath) => Promise<T>,
  { makeParents = false }: { makeParents?: boolean } = {},
): Promise<T> {
  const names = pathNames(path);
  const last = names.pop();
  if (last === undefined) return work("/");
  if (!hasDescriptorPaths()) return work(joinNative(await checkDirectories(names, makeParents), last));
  const directory = await acquireDirectory(names, makeParents);
  try {
    return await work(joinNative(descriptorPath(await directory.opening), last));
  } finally {
    releaseDirectory(directory);
  }
}

/** Calls `work` with the path itself, or with a path from `withNoFollow` if `followSymlinks` is false. */
export async function reaching<T>(
  path: NativePath,
  followSymlinks: boolean | undefined,
  work: (path: NativePath) => Promise<T>,
): Promise<T> {
  return followSymlinks === false ? withNoFollow(path, work) : work(path);
}

/** Opens a directory unless it is a symbolic link, and calls `work` with a path through the descriptor. */
export async function withDirectory<T>(safePath: NativePath, work: (directory: NativePath) => Promise<T>): Promise<T> {
  if (!hasDescriptorPaths()) return work(safePath);
  await using directory = await open(safePath, DIRECTORY_ONLY);
  return await work(descriptorPath(directory));
}

/** Like `withNoFollow`, but rejects a symbolic link in the last name too. */
export async function withEntry<T>(path: NativePath, work: (path: NativePath) => Promise<T>): Promise<T> {
  return withNoFollow(path, async (safePath) => {
    if (!hasDescriptorPaths()) {
      if ((await lstat(safePath)).isSymbolicLink()) throw symbolicLinkRefused();
      return work(safePath);
    }
    await using entry = await open(safePath, O_PATH | constants.O_NOFOLLOW);
    if ((await entry.stat()).isSymbolicLink()) throw symbolicLinkRefused();
    return await work(descriptorPath(entry));
  });
}

export const symbolicLinkRefused = () => invalidRequest("path contains a symbolic link");

/** Linux's flag for a descriptor that only identifies a path; it needs no read permission. */
export const O_PATH = process.platform === "linux" ? 0o10000000 : 0;
/** Reports whether a path can start at a descriptor, as in `/proc/self/fd/7/name`. */
export function hasDescriptorPaths(): boolean {
  // Not at import: Deno rejects the check without `--allow-all`, and a client by URL never needs it.
  descriptorPaths ??= process.platform === "linux" && existsSync("/proc/self/fd");
  return descriptorPaths;
}
let descriptorPaths: boolean | null = null;

const DIRECTORY_ONLY = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** Maximum number of idle open directories; each uses a descriptor of the process. */
const MAX_OPEN_DIRECTORIES = 32;
/** Time between two sweeps of idle directories: longer than the pauses within a copy of many small files. */
const SWEEP_INTERVAL_MS = 100;
/** Uses of one descriptor after which the directory is opened again, even if requests overlap continuously. */
const MAX_SHARED_USES = 512;

/** An open directory, shared by requests that overlap or follow each other closely. */
interface SharedDirectory {
  key: string;
  path: NativePath;
  opening: Promise<FileHandle>;
  /** Resolves to false if the directory did not open or its path refers to another directory. */
  usable: Promise<boolean>;
  users: number;
  uses: number;
  /** Idle since before the last sweep. */
  isSwept: boolean;
}

/**
 * Open directories by path. A copy of many small files sends thousands of requests for few directories, and each path is
 * resolved once. An idle directory is compared with its path before the next use.
 */
const openDirectories = new Map<string, SharedDirectory>();
let isSweepScheduled = false;

async function acquireDirectory(names: NativePath[], make: boolean): Promise<SharedDirectory> {
  const key = names.map(latin1Path).join("/");
  const known = openDirectories.get(key);
  if (known !== undefined && known.uses < MAX_SHARED_USES) {
    if (known.users === 0) known.usable = isAtPath(known);
    known.users++;
    known.uses++;
    if (await known.usable) return known;
    if (openDirectories.get(key) === known) openDirectories.delete(key);
    releaseDirectory(known);
  }
  const opening = openDirectory(names, make);
  const usable = opening.then(
    () => true,
    () => false,
  );
  const path = names.reduce(joinNative, "/");
  const opened: SharedDirectory = { key, path, opening, usable, users: 1, uses: 1, isSwept: false };
  const replaced = openDirectories.get(key);
  if (replaced?.users === 0) closeDirectory(replaced);
  openDirectories.set(key, opened);
  try {
    await opening;
    return opened;
  } catch (error) {
    if (openDirectories.get(key) === opened) openDirectories.delete(key);
    throw error;
  }
}

function releaseDirectory(directory: SharedDirectory): void {
  if (--directory.users > 0) return;
  const staysOpen = openDirectories.get(directory.key) === directory && openDirectories.size <= MAX_OPEN_DIRECTORIES;
  directory.isSwept = false;
  if (staysOpen) scheduleSweep();
  else closeDirectory(directory);
}

function scheduleSweep(): void {
  if (isSweepScheduled) return;
  isSweepScheduled = true;
  setTimeout(sweep, SWEEP_INTERVAL_MS).unref();
}

/** Closes directories that were idle for a whole interval. */
function sweep(): void {
  isSweepScheduled = false;
  for (const directory of openDirectories.values()) {
    if (directory.users > 0) continue;
    if (directory.isSwept) closeDirectory(directory);
    else directory.isSwept = true;
  }
  if (openDirectories.size > 0) scheduleSweep();
}

function closeDirectory(directory: SharedDirectory): void {
  if (openDirectories.get(directory.key) === directory) openDirectories.delete(directory.key);
  directory.opening.then(
    (handle) => handle.close().catch(() => undefined),
    // The requests receive the error.
    () => undefined,
  );
}

/** Returns true if the path of an open directory still refers to it. */
async function isAtPath(directory: SharedDirectory): Promise<boolean> {
  try {
    const handle = await directory.opening;
    const [opened, found] = await Promise.all([handle.stat({ bigint: true }), lstat(directory.path, { bigint: true })]);
    return opened.dev === found.dev && opened.ino === found.ino;
  } catch {
    return false;
  }
}

async function openDirectory(names: NativePath[], make: boolean): Promise<FileHandle> {
  const name = names.at(-1);
  if (name === undefined) return open("/", DIRECTORY_ONLY);
  const parent = await acquireDirectory(names.slice(0, -1), make);
  try {
    return await openBelow(await parent.opening, name, make);
  } finally {
    releaseDirectory(parent);
  }
}

async function openBelow(directory: FileHandle, name: NativePath, make: boolean): Promise<FileHandle> {
  const path = joinNative(descriptorPath(directory), name);
  try {
    return await open(path, DIRECTORY_ONLY);
  } catch (error) {
    if (!make || errnoNameOf(error) !== "ENOENT") throw error;
  }
  await mkdir(path).catch((error: unknown) => {
    // The name appeared meanwhile; the open below checks it.
    if (errnoNameOf(error) !== "EEXIST") throw error;
  });
  return await open(path, DIRECTORY_ONLY);
}

function descriptorPath(handle: FileHandle): string {
  return `/proc/self/fd/${handle.fd}`;
}

/** Returns the path of the directory after checking each name. */
async function checkDirectories(names: NativePath[], make: boolean): Promise<NativePath> {
  let directory: NativePath = "/";
  for (const name of names) {
    directory = joinNative(directory, name);
    const found = await lstat(directory).catch(async (error: unknown) => {
      if (!make || errnoNameOf(error) !== "ENOENT") throw error;
      await mkdir(directory);
      return lstat(directory);
    });
    if (!found.isDirectory()) throw Object.assign(new Error("ENOTDIR: not a directory"), { code: "ENOTDIR" });
  }
  return directory;
}
