import { ByteSemaphore } from "../../async/byte-semaphore.ts";
import { TaskSet } from "../../async/task-set.ts";
import { errorMessage } from "../../base/error-message.ts";
import { checkArgument, checkOptions } from "../../exec/options/option-schema.ts";
import { MAX_BLOCK_BYTES } from "../../protocol/file-schemas.ts";
import { pathFromUri } from "../../protocol/path-uri.ts";
import { copyDestination, copyEndpoint, copyFilesOptions } from "../client-options.ts";
import type { PathScan, ScannedEntry } from "../files/remote-files.ts";
import { joinEntry, splitPath, toPathUri } from "../rpc/path-conversion.ts";
import { copyInBlocks, haveSameContent, MAX_BLOCKS_IN_FLIGHT, systemErrorCode } from "./block-copy.ts";
import type {
  CopyDestination,
  CopyEndpoint,
  CopyFilesOptions,
  CopyProblem,
  CopyResult,
  CopyTotals,
} from "./copy-types.ts";

/** Maximum size of a file that is sent in one message. */
const SMALL_FILE_BYTES = 256 * 1024;
/** Maximum bytes in flight: as much as one large file. */
const MAX_BYTES_IN_FLIGHT = MAX_BLOCK_BYTES * MAX_BLOCKS_IN_FLIGHT;
/** Minimum cost of a file: 256 small files are in flight at once, enough for a distant host. */
const FILE_COST_BYTES = MAX_BYTES_IN_FLIGHT / 256;
/** Directories scanned concurrently, because a distant host takes long for each. */
const WALKERS = 16;
/** Directories whose mode and time are set concurrently. */
const ATTRIBUTE_BATCH = 256;
/** Maximum nesting: deeper than any valid path. Without it, a followed link to a parent directory never ends. */
const MAX_DEPTH = 512;
/** Times that differ by less are equal, because file systems round them. */
const SAME_TIME_MS = 1;

/**
 * Copies a file or a tree from one host to another, including the local host. A tree is copied as the destination, not into
 * it: repeating the copy resumes an interrupted one. Modes and times are preserved. A file that cannot be copied is listed
 * in `problems`, and the copy continues; a lost host or a full disk ends it. Names from the source's server stay below the
 * destination, and nothing is written through a symbolic link there.
 *
 * @example
 * await using here = await Environment.create(null);
 * await using there = await Environment.create("ws://127.0.0.1:7070");
 * await copyFiles({ files: here.files, path: "/src/app" }, { files: there.files, path: "/srv/app" });
 */
export async function copyFiles(
  from: CopyEndpoint,
  to: CopyDestination,
  options: CopyFilesOptions = {},
): Promise<CopyResult> {
  checkArgument("copyFiles", "from", from, copyEndpoint);
  checkArgument("copyFiles", "to", to, copyDestination);
  checkOptions("copyFiles", options, copyFilesOptions);
  return await new TreeCopy(from, to, options).run();
}

interface Directory {
  source: string;
  destination: string;
  depth: number;
}

class TreeCopy {
  readonly #from: CopyEndpoint;
  readonly #to: CopyDestination;
  readonly #options: CopyFilesOptions;
  readonly #transfers = new ByteSemaphore(MAX_BYTES_IN_FLIGHT);
  readonly #abort = new AbortController();
  /** Aborts when the caller does, or after a failure that all other files would repeat. */
  readonly #signal: AbortSignal;
  readonly #problems: CopyProblem[] = [];
  /** Directories not visited yet. The last one found is visited first, so that few are pending at a time. */
  readonly #unvisited: Directory[] = [];
  /** Directories that exist now and get their attributes at the end, parents first. */
  readonly #createdDirectories: { path: string; self: ScannedEntry }[] = [];
  readonly #tally: CopyTotals = {
    files: 0,
    unchanged: 0,
    bytes: 0,
    totalFiles: 0,
    totalBytes: 0,
    isCounted: false,
  };

  constructor(from: CopyEndpoint, to: CopyDestination, options: CopyFilesOptions) {
    this.#from = from;
    this.#to = to;
    this.#options = options;
    this.#signal = options.signal ? AbortSignal.any([options.signal, this.#abort.signal]) : this.#abort.signal;
  }

  async run(): Promise<CopyResult> {
    const source = trimTrailingSlash(this.#from.path);
    const { self } = await this.#scanSource(source);
    const destination = await this.#resolveDestination(self.type === "directory");
    if (self.type === "directory") await this.#copyTree({ source, destination, depth: 0 });
    else {
      this.#countFound(self);
      this.#tally.isCounted = true;
      await this.#copy(source, destination, self, await this.#statDestination(destination));
    }
    return { ...this.#tally, problems: this.#problems };
  }

  async #copyTree(root: Directory): Promise<void> {
    const transfers = new TaskSet(() => undefined);
    await this.#visit(root, transfers);
    try {
      await this.#visitAll(transfers);
    } finally {
      await transfers.settled();
    }
    this.#signal.throwIfAborted();
    this.#tally.isCounted = true;
    await this.#setDirectoryAttributes();
  }

  /** Visits the queued directories and those they contain, `WALKERS` at a time. Stops at an abort. */
  #visitAll(transfers: TaskSet): Promise<void> {
    const done = Promise.withResolvers<void>();
    let active = 0;
    const visitNext = () => {
      while (active < WALKERS && !this.#signal.aborted) {
        const directory = this.#unvisited.pop();
        if (!directory) break;
        active++;
        void this.#collectProblem(directory.source, () => this.#visit(directory, transfers)).then(() => {
          active--;
          visitNext();
        }, done.reject);
      }
      if (active === 0) done.resolve();
    };
    visitNext();
    return done.promise;
  }

  /** Creates one directory, starts the copies of its files and queues its subdirectories. */
  async #visit({ source, destination, depth }: Directory, transfers: TaskSet): Promise<void> {
    if (depth > MAX_DEPTH) throw new Error(`directories are nested more than ${MAX_DEPTH} levels deep`);
    const { self, entries } = await this.#scanSource(source);
    const existing = await this.#openDirectory(destination);
    this.#createdDirectories.push({ path: destination, self });
    const known = new Map(existing?.entries.map((entry) => [entry.name, entry]));
    for (const entry of entries) if (entry.type !== "directory") this.#countFound(entry);
    for (const entry of entries) {
      const from = joinEntry(source, entry.name);
      const to = joinEntry(destination, entry.name);
      if (entry.type === "directory") {
        this.#unvisited.push({ source: from, destination: to, depth: depth + 1 });
        continue;
      }
      const cost = Math.min(Math.max(entry.size, FILE_COST_BYTES), MAX_BYTES_IN_FLIGHT);
      const release = await this.#transfers.acquire(cost, this.#signal);
      const copy = () => this.#copy(from, to, entry, known.get(entry.name) ?? null);
      transfers.run(() => this.#collectProblem(from, copy).finally(release));
    }
  }

  /** Runs last: adding files to a directory changes its time, and its mode may forbid adding files. */
  async #setDirectoryAttributes(): Promise<void> {
    while (this.#createdDirectories.length > 0) {
      const batch = this.#createdDirectories.splice(-ATTRIBUTE_BATCH).reverse();
      await Promise.all(
        batch.map(({ path, self: { mode, modifiedAtMs } }) =>
          this.#collectProblem(path, () =>
            this.#to.files.setAttributes(path, {
              mode,
              modifiedAtMs,
              followSymlinks: false,
              signal: this.#signal,
            }),
          ),
        ),
      );
      this.#signal.throwIfAborted();
    }
  }

  /**
   * Returns the destination after resolving the links that the caller chose. All later calls reject links, so the
   * source's server cannot redirect them.
   */
  async #resolveDestination(isDirectory: boolean): Promise<string> {
    const path = trimTrailingSlash(this.#to.path);
    const { within } = this.#to;
    if (within === undefined && isDirectory) {
      await this.#to.files.createDirectory(path, { signal: this.#signal });
      return this.#realPath(path);
    }
    const [directory, names] = splitPath(path, within);
    let destination = await this.#realPath(directory);
    for (const name of names) destination = joinEntry(destination, name);
    return destination;
  }

  async #realPath(path: string): Promise<string> {
    const real = await this.#to.files.canonicalize(toPathUri(path), { signal: this.#signal });
    return /^file:/i.test(path) ? real : toNativeIfUtf8(real);
  }

  /** Creates the directory and returns null, or returns the scan of an existing one. */
  async #openDirectory(path: string): Promise<PathScan | null> {
    const nofollow = { followSymlinks: false, signal: this.#signal };
    try {
      const existing = await this.#to.files.scan(path, nofollow);
      if (existing.self.type === "directory") return existing;
      if (existing.self.type === "symlink")
        throw new Error(`copy to ${path}: a symbolic link is in the place of the directory; remove the link`);
    } catch (error) {
      if (systemErrorCode(error) !== "ENOENT") throw error;
    }
    await this.#to.files.createDirectory(path, nofollow);
    return null;
  }

  async #copy(source: string, destination: string, entry: ScannedEntry, existing: ScannedEntry | null): Promise<void> {
    const { type, target, mode, modifiedAtMs } = entry;
    const signal = this.#signal;
    if (existing?.type === "directory" || existing?.type === "other")
      throw new Error(`cannot replace ${destination}: it is not a file or a link`);
    switch (type) {
      case "symlink":
        if (target === undefined || this.#options.links === "skip") return this.#count("skipped");
        // With `follow`, the target does not exist, and a copy of the link would be broken too.
        if (this.#options.links === "follow") throw new Error("the target of the link does not exist");
        if (existing?.target === target) return this.#count("unchanged");
        await this.#to.files.writeAtomic(destination, { target }, { followSymlinks: false, signal });
        return this.#count("copied");
      case "file": {
        const from = { files: this.#from.files, path: source };
        const to = { files: this.#to.files, path: destination };
        if (existing !== null && (await this.#isSame(from, to, entry, existing))) return this.#count("unchanged");
        if (entry.size > SMALL_FILE_BYTES) {
          await copyInBlocks(from, to, entry, {
            signal,
            onBytes: (count) => this.#countBytes(count),
            onPartialKept: (path) => this.#options.onPartialKept?.(path),
          });
        } else {
          const chunk = await from.files.readFile(source, { signal });
          await to.files.writeAtomic(destination, { chunk }, { mode, modifiedAtMs, followSymlinks: false, signal });
          this.#countBytes(chunk.length);
        }
        return this.#count("copied");
      }
      case "directory":
      case "other":
        throw new Error("not a file, directory or link; skipped");
    }
  }

  async #isSame(from: CopyEndpoint, to: CopyEndpoint, entry: ScannedEntry, existing: ScannedEntry): Promise<boolean> {
    if (existing.type !== "file" || existing.size !== entry.size) return false;
    const { mode, modifiedAtMs } = entry;
    const isSameTime = Math.abs(existing.modifiedAtMs - modifiedAtMs) < SAME_TIME_MS;
    const isSame = this.#options.checksum ? await haveSameContent(from, to, entry.size, this.#signal) : isSameTime;
    if (isSame && (existing.mode !== mode || !isSameTime))
      await to.files.setAttributes(to.path, {
        mode,
        modifiedAtMs,
        followSymlinks: false,
        signal: this.#signal,
      });
    return isSame;
  }

  /** Records a failure and continues, or ends the copy if all other files would fail too. */
  async #collectProblem(path: string, task: () => Promise<void>): Promise<void> {
    try {
      await task();
    } catch (error) {
      if (this.#signal.aborted) return;
      if (FATAL_CODES.has(systemErrorCode(error) ?? "")) this.#abort.abort(error);
      else this.#problems.push({ path, message: errorMessage(error) });
    }
  }

  #scanSource(path: string): Promise<PathScan> {
    return this.#from.files.scan(path, {
      followLinks: this.#options.links === "follow",
      signal: this.#signal,
    });
  }

  async #statDestination(path: string): Promise<ScannedEntry | null> {
    const { files } = this.#to;
    const signal = this.#signal;
    try {
      const { self } = await files.scan(path, { followSymlinks: false, signal });
      if (self.type !== "symlink") return self;
      // The file replaces a link, except a link to a directory: the caller may have meant a file in it.
      const target = await files.scan(path, { signal }).catch(() => null);
      return target?.self.type === "directory" ? target.self : self;
    } catch (error) {
      if (systemErrorCode(error) === "ENOENT") return null;
      throw error;
    }
  }

  #countFound(entry: ScannedEntry): void {
    this.#tally.totalFiles++;
    if (entry.type === "file") this.#tally.totalBytes += entry.size;
  }

  #countBytes(count: number): void {
    this.#tally.bytes += count;
    this.#options.onProgress?.(this.#tally);
  }

  #count(outcome: "copied" | "unchanged" | "skipped"): void {
    if (outcome !== "skipped") this.#tally.files++;
    if (outcome === "unchanged") this.#tally.unchanged++;
    this.#options.onProgress?.(this.#tally);
  }
}

/** Error codes that every other file would meet too. */
const FATAL_CODES: ReadonlySet<string> = new Set(["DISCONNECTED", "ENOSPC", "EDQUOT", "EROFS", "UNSUPPORTED"]);

/** Returns the native path of a URI, or the URI itself if the path is not UTF-8. */
function toNativeIfUtf8(uri: string): string {
  try {
    return pathFromUri(uri);
  } catch {
    return uri;
  }
}

function trimTrailingSlash(path: string): string {
  return path.replace(/(?<=[^/])\/+$/, "");
}
