import { ByteTurns } from "../../async/byte-semaphore.ts";
import { TaskSet } from "../../async/task-set.ts";
import { messageOf } from "../../base/error-message.ts";
import type { Scan, ScannedEntry } from "../files/remote-files.ts";
import { belowPath } from "../wire-path.ts";
import { BLOCK_BYTES, BLOCKS_AT_ONCE, codeOf, copyLargeFile, haveSameContent } from "./block-copy.ts";
import type { CopyFilesOptions, CopyPlace, CopyProblem, CopyResult, CopyTally } from "./copy-types.ts";

/** A file up to this size goes in one message. */
const SMALL_FILE_BYTES = 256 * 1024;
/** What is under way at once, in bytes: as much as one large file. */
const BYTES_AT_ONCE = BLOCK_BYTES * BLOCKS_AT_ONCE;
/** What a small file counts for at least: 256 of them are under way at once, enough for a far host. */
const FILE_COST_BYTES = BYTES_AT_ONCE / 256;
/** Directories that are looked at at once: a far host takes its time for each answer. */
const WALKERS = 16;
/** Directories that get their mode and time in one go. */
const DRESSED_AT_ONCE = 256;
/** Deeper than any path the system takes; a link that leads back up would never end otherwise. */
const MAX_DEPTH = 512;
/** Two times are the same when they differ by less: what was set comes back rounded. */
const SAME_TIME_MS = 1;

/**
 * Copies a file or a tree from one host to another, this machine included. A tree is copied as the destination, not into it:
 * the same copy again goes on where the first was interrupted. Modes and times are kept. One file that cannot be copied is
 * told in `problems`, and the rest goes on; a lost host or a full disk ends it all.
 *
 * @example
 * await using here = await Environment.create(null);
 * await using there = await Environment.create("ws://127.0.0.1:7070");
 * await copyFiles({ files: here.files, path: "/src/app" }, { files: there.files, path: "/srv/app" });
 */
export async function copyFiles(
  from: CopyPlace,
  to: CopyPlace,
  options: CopyFilesOptions = {},
): Promise<CopyResult> {
  return await new TreeCopy(from, to, options).run();
}

interface Directory {
  source: string;
  destination: string;
  depth: number;
}

class TreeCopy {
  readonly #from: CopyPlace;
  readonly #to: CopyPlace;
  readonly #options: CopyFilesOptions;
  readonly #transfers = new ByteTurns(BYTES_AT_ONCE);
  readonly #over = new AbortController();
  /** Ended by the caller, or by a failure that the rest would only meet again. */
  readonly #signal: AbortSignal;
  readonly #problems: CopyProblem[] = [];
  /** Directories that nobody has looked at yet; the last one found comes first, so that few are open at a time. */
  readonly #unvisited: Directory[] = [];
  /** Those that are there now and get their attributes at the end, from the top down. */
  readonly #made: { path: string; self: ScannedEntry }[] = [];
  readonly #tally: CopyTally = {
    files: 0,
    unchanged: 0,
    bytes: 0,
    totalFiles: 0,
    totalBytes: 0,
    isCounted: false,
  };

  constructor(from: CopyPlace, to: CopyPlace, options: CopyFilesOptions) {
    this.#from = from;
    this.#to = to;
    this.#options = options;
    this.#signal = options.signal ? AbortSignal.any([options.signal, this.#over.signal]) : this.#over.signal;
  }

  async run(): Promise<CopyResult> {
    const source = withoutEndSlash(this.#from.path);
    const destination = withoutEndSlash(this.#to.path);
    const { self } = await this.#scanSource(source);
    if (self.type === "directory") await this.#tree({ source, destination, depth: 0 });
    else {
      this.#found(self);
      this.#tally.isCounted = true;
      await this.#entry(source, destination, self, await this.#lookAt(destination));
    }
    return { ...this.#tally, problems: this.#problems };
  }

  async #tree(root: Directory): Promise<void> {
    const transfers = new TaskSet(() => undefined);
    await this.#visit(root, transfers);
    try {
      let active = 0;
      const walk = async (): Promise<void> => {
        for (let next = this.#unvisited.pop(); next && !this.#signal.aborted; next = this.#unvisited.pop()) {
          const directory = next;
          active++;
          await this.#noting(directory.source, () => this.#visit(directory, transfers));
          active--;
        }
      };
      // A walker that finds nothing to do may end while another still finds more: so they are started again.
      do await Promise.all(Array.from({ length: WALKERS }, walk));
      while (this.#unvisited.length > 0 && active === 0 && !this.#signal.aborted);
    } finally {
      await transfers.settled();
    }
    this.#signal.throwIfAborted();
    this.#tally.isCounted = true;
    await this.#dressDirectories();
  }

  /** Makes one directory, starts what is to be copied into it, and leaves those below it to be visited. */
  async #visit({ source, destination, depth }: Directory, transfers: TaskSet): Promise<void> {
    if (depth > MAX_DEPTH) throw new Error(`its directories are nested more than ${MAX_DEPTH} deep`);
    const { self, entries } = await this.#scanSource(source);
    const there = await this.#openDirectory(destination);
    this.#made.push({ path: destination, self });
    const known = new Map(there?.entries.map((entry) => [entry.name, entry]));
    for (const entry of entries) if (entry.type !== "directory") this.#found(entry);
    for (const entry of entries) {
      const from = belowPath(source, entry.name);
      const to = belowPath(destination, entry.name);
      if (entry.type === "directory") {
        this.#unvisited.push({ source: from, destination: to, depth: depth + 1 });
        continue;
      }
      const cost = Math.min(Math.max(entry.size, FILE_COST_BYTES), BYTES_AT_ONCE);
      const leave = await this.#transfers.take(cost, this.#signal);
      const copy = () => this.#entry(from, to, entry, known.get(entry.name) ?? null);
      transfers.run(() => this.#noting(from, copy).finally(leave));
    }
  }

  /** Last of all, since what is put into a directory changes its time, and may not be allowed by its mode. */
  async #dressDirectories(): Promise<void> {
    for (let made = this.#made.splice(-DRESSED_AT_ONCE); made.length > 0; ) {
      await Promise.all(
        made
          .reverse()
          .map(({ path, self: { mode, modifiedAtMs } }) =>
            this.#noting(path, () =>
              this.#to.files.setAttributes(path, { mode, modifiedAtMs, signal: this.#signal }),
            ),
          ),
      );
      this.#signal.throwIfAborted();
      made = this.#made.splice(-DRESSED_AT_ONCE);
    }
  }

  /** Makes the directory, or gives what is in it already. */
  async #openDirectory(path: string): Promise<Scan | null> {
    const signal = this.#signal;
    try {
      const there = await this.#to.files.scan(path, { signal });
      if (there.self.type === "directory") return there;
    } catch (error) {
      if (codeOf(error) !== "ENOENT") throw error;
    }
    await this.#to.files.createDirectory(path, { signal });
    return null;
  }

  async #entry(
    source: string,
    destination: string,
    entry: ScannedEntry,
    there: ScannedEntry | null,
  ): Promise<void> {
    const { type, target, mode, modifiedAtMs } = entry;
    const signal = this.#signal;
    if (there?.type === "directory" || there?.type === "other")
      throw new Error(`${destination} is in the way: only a file or a link is replaced`);
    switch (type) {
      case "symlink":
        if (target === undefined || this.#options.links === "skip") return this.#done("skipped");
        // With `follow` it leads nowhere: a copy of the link would too.
        if (this.#options.links === "follow") throw new Error("the target of the link does not exist");
        if (there?.target === target) return this.#done("unchanged");
        await this.#to.files.put(destination, { target }, { signal });
        return this.#done("copied");
      case "file": {
        const from = { files: this.#from.files, path: source };
        const to = { files: this.#to.files, path: destination };
        if (there !== null && (await this.#isSame(from, to, entry, there))) return this.#done("unchanged");
        if (entry.size > SMALL_FILE_BYTES) {
          await copyLargeFile(from, to, entry, {
            signal,
            onBytes: (count) => this.#arrived(count),
            onKept: (path) => this.#options.onKept?.(path),
          });
        } else {
          const chunk = await from.files.readFile(source, { signal });
          await to.files.put(destination, { chunk }, { mode, modifiedAtMs, signal });
          this.#arrived(chunk.length);
        }
        return this.#done("copied");
      }
      case "directory":
      case "other":
        throw new Error("neither a file nor a directory nor a link; it is left out");
    }
  }

  async #isSame(from: CopyPlace, to: CopyPlace, entry: ScannedEntry, there: ScannedEntry): Promise<boolean> {
    if (there.type !== "file" || there.size !== entry.size) return false;
    const { mode, modifiedAtMs } = entry;
    const sameTime = Math.abs(there.modifiedAtMs - modifiedAtMs) < SAME_TIME_MS;
    const same = this.#options.checksum
      ? await haveSameContent(from, to, entry.size, this.#signal)
      : sameTime;
    if (same && (there.mode !== mode || !sameTime))
      await to.files.setAttributes(to.path, { mode, modifiedAtMs, signal: this.#signal });
    return same;
  }

  /** Notes a failure and lets the rest go on; ends everything when there is no use in that. */
  async #noting(path: string, task: () => Promise<void>): Promise<void> {
    try {
      await task();
    } catch (error) {
      if (this.#signal.aborted) return;
      if (ENDS_ALL.has(codeOf(error) ?? "")) this.#over.abort(error);
      else this.#problems.push({ path, message: messageOf(error) });
    }
  }

  #scanSource(path: string): Promise<Scan> {
    return this.#from.files.scan(path, {
      followLinks: this.#options.links === "follow",
      signal: this.#signal,
    });
  }

  async #lookAt(path: string): Promise<ScannedEntry | null> {
    try {
      return (await this.#to.files.scan(path, { signal: this.#signal })).self;
    } catch (error) {
      if (codeOf(error) === "ENOENT") return null;
      throw error;
    }
  }

  #found(entry: ScannedEntry): void {
    this.#tally.totalFiles++;
    if (entry.type === "file") this.#tally.totalBytes += entry.size;
  }

  #arrived(count: number): void {
    this.#tally.bytes += count;
    this.#options.onProgress?.(this.#tally);
  }

  #done(how: "copied" | "unchanged" | "skipped"): void {
    if (how !== "skipped") this.#tally.files++;
    if (how === "unchanged") this.#tally.unchanged++;
    this.#options.onProgress?.(this.#tally);
  }
}

/** Failures that every other file would meet too. */
const ENDS_ALL: ReadonlySet<string> = new Set(["DISCONNECTED", "ENOSPC", "EDQUOT", "EROFS", "UNSUPPORTED"]);

function withoutEndSlash(path: string): string {
  return path.replace(/(?<=[^/])\/+$/, "");
}
