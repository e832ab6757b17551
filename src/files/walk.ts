import { lstat, stat } from "node:fs/promises";
import { SliceCounter } from "../async/slices.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { uriFromPath } from "../protocol/path-uri.ts";
import { listDirectory, MAX_DIRECTORY_ENTRIES } from "./directories.ts";
import type { WalkParams, WalkResult } from "./file-system.ts";
import type { FileTrees, ListedEntry, Listing } from "./file-trees.ts";
import { joinNative, type NativePath, nativePathFromUri } from "./native-path.ts";
import { errnoNameOf, osErrorMessage, withOsErrors } from "./os-error.ts";

/** The protocol's maximums; a request that exceeds them is rejected. */
export const WALK_MAXIMUMS = { depth: 64, directories: 10_000, entries: 50_000 };

/** Maximum size of one response, counted like Codex does. */
export const MAX_WALK_RESPONSE_BYTES = 4 * 1024 * 1024;
/** Counted per entry in addition to its path. */
const LINE_OVERHEAD_BYTES = 64;

/**
 * Lists a tree breadth first, with sorted names per directory. Links to files are omitted. Links to directories are
 * included with `followDirectorySymlinks`; then no directory is entered twice.
 */
export async function walk(params: WalkParams, list: FileTrees["list"] = listDirectory): Promise<WalkResult> {
  checkLimits(params.options);
  const root = nativePathFromUri(params.path);
  return await withOsErrors(async () => {
    const result = new BoundedResult(params.options.maxEntries);
    const found = await stat(root);
    const canEnter = params.options.followDirectorySymlinks || !(await lstat(root)).isSymbolicLink();
    if (found.isDirectory() && canEnter) await walkFrom(root, params.options, result, list);
    return result.value;
  });
}

type Options = WalkParams["options"];

async function walkFrom(
  root: NativePath,
  options: Options,
  result: BoundedResult,
  list: FileTrees["list"],
): Promise<void> {
  const slices = new SliceCounter();
  const entered = new Set<string>();
  const queue: { path: NativePath; depth: number }[] = [{ path: root, depth: 0 }];
  let directories = 0;
  const ahead = new Map<NativePath, Promise<Listing>>();
  const listAhead = (path: NativePath) => {
    const listing = list(path, MAX_DIRECTORY_ENTRIES);
    // The walk handles the failure when it reaches the directory.
    listing.catch(() => undefined);
    ahead.set(path, listing);
    return listing;
  };
  for (const [at, { path, depth }] of queue.entries()) {
    if (options.followDirectorySymlinks && !(await recordVisit(path, entered))) continue;
    if (directories === options.maxDirectories) return result.truncate();
    directories++;

    const started = ahead.get(path) ?? listAhead(path);
    ahead.delete(path);
    const next = queue[at + 1];
    // A followed link may lead to a directory that the walk omits.
    if (next && !options.followDirectorySymlinks) void listAhead(next.path);
    const listing = await started.catch((error: unknown) => {
      const name = errnoNameOf(error);
      // An unreadable root fails the call; an unreadable directory below it is reported in `errors`.
      if (depth === 0 || name === null) throw error;
      result.addError(path, osErrorMessage(name));
      return { entries: [], truncated: false };
    });
    if (listing.truncated) result.truncate();
    listing.entries.sort((a, b) => (a.sortKey < b.sortKey ? -1 : 1));

    for (const entry of listing.entries) {
      if (slices.isOver()) await slices.next();
      if (!result.countEntry()) return;
      const kind = listedKind(entry, options);
      if (kind === null) continue;
      const entryPath = joinNative(path, entry.name);
      if (!result.addEntry(entryPath, kind)) return;
      const isPruned = options.pruneHiddenDirectories === true && entry.sortKey.startsWith(".");
      if (kind === "directory" && depth < options.maxDepth && !isPruned) {
        queue.push({ path: entryPath, depth: depth + 1 });
      }
    }
  }
}

function listedKind(entry: ListedEntry, options: Options): "file" | "directory" | null {
  if (entry.kind === "directory") return !entry.isSymlink || options.followDirectorySymlinks ? "directory" : null;
  return entry.kind === "file" && !entry.isSymlink ? "file" : null;
}

/** Records a visit. Returns true on the first visit of a directory, under any path. */
async function recordVisit(path: NativePath, entered: Set<string>): Promise<boolean> {
  const found = await stat(path, { bigint: true }).catch(() => null);
  // Removed since it was listed: the next listing reports it.
  if (found === null) return true;
  const key = `${found.dev}:${found.ino}`;
  if (entered.has(key)) return false;
  entered.add(key);
  return true;
}

class BoundedResult {
  readonly value: WalkResult = { entries: [], errors: [], truncated: false };
  #entriesLeft: number;
  #bytesLeft = MAX_WALK_RESPONSE_BYTES;

  constructor(maxEntries: number) {
    this.#entriesLeft = maxEntries;
  }

  /** Counts every visited entry, listed or not. */
  countEntry(): boolean {
    if (this.#entriesLeft === 0) return this.#full();
    this.#entriesLeft--;
    return true;
  }

  addEntry(path: NativePath, kind: "file" | "directory"): boolean {
    const uri = uriFromPath(path);
    if (!this.#take(uri.length)) return false;
    this.value.entries.push({ path: uri, kind });
    return true;
  }

  addError(path: NativePath, message: string): void {
    const uri = uriFromPath(path);
    if (this.#take(uri.length + message.length)) this.value.errors.push({ path: uri, message });
  }

  truncate(): void {
    this.value.truncated = true;
  }

  #take(bytes: number): boolean {
    if (this.#bytesLeft < bytes + LINE_OVERHEAD_BYTES) return this.#full();
    this.#bytesLeft -= bytes + LINE_OVERHEAD_BYTES;
    return true;
  }

  #full(): false {
    this.truncate();
    return false;
  }
}

function checkLimits(options: Options): void {
  const { depth, directories, entries } = WALK_MAXIMUMS;
  if (options.maxDepth > depth || options.maxDirectories > directories || options.maxEntries > entries) {
    throw invalidRequest(
      `filesystem walk limits exceed maximums: depth=${depth}, directories=${directories}, entries=${entries}`,
    );
  }
  if (options.maxDirectories === 0 || options.maxEntries === 0) {
    throw invalidRequest("filesystem walk limits must be greater than zero");
  }
}
