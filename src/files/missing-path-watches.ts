import { type FSWatcher, watch } from "node:fs";
import { lstat, stat } from "node:fs/promises";
import { type Clock, systemClock, type Timer } from "../async/clock.ts";
import { ErrorCode, RequestError } from "../protocol/errors.ts";
import type { MissingPathWatches, WatchMissingParams } from "./file-system.ts";
import { joinNative, latin1Path, type NativePath, nativePathFromUri, pathNames } from "./native-path.ts";

/** Each path may need a system watch, of which a user has few. The number is Codex's. */
export const MAX_MISSING_PATHS = 64;

/** Poll interval if the system has no watch left. */
export const POLL_MS = 1000;

/**
 * Notifies a connection that missing paths may exist now. There is one watch at a time: a higher id ends the previous
 * watch, even if the new one is rejected. A watch notifies once, on any change of its paths: a missing parent appears, or the
 * `present` file changes. The client then checks the paths and starts a new watch.
 */
export class MissingWatches implements MissingPathWatches {
  #onChanged: (watchId: number) => void;
  readonly #acquire: (paths: number) => () => void;
  #system: WatchBackend;
  #lastId = 0;
  #current: PathWatch | null = null;
  #closed = false;

  constructor(onChanged: (watchId: number) => void, { acquire, ...system }: MissingWatchesOptions = {}) {
    this.#onChanged = onChanged;
    this.#acquire = acquire ?? (() => () => undefined);
    this.#system = { clock: systemClock, watch, ...system };
  }

  async watchMissing(params: WatchMissingParams): Promise<{ watching: boolean }> {
    const missing = params.missing.map(localPath);
    const present = params.present === undefined ? undefined : localPath(params.present);
    const { watchId } = params;
    if (this.#closed || watchId <= this.#lastId) return { watching: false };
    this.#lastId = watchId;
    this.#current?.end();
    this.#current = null;
    if (missing.length === 0 || missing.length > MAX_MISSING_PATHS) return { watching: false };

    const paths = missing.filter((path) => path !== null);
    if (paths.length < missing.length || present === null) return { watching: false };
    const started = new PathWatch(() => this.#onChanged(watchId), this.#acquire(paths.length), this.#system);
    this.#current = started;
    const watching = await started.start(paths, present);
    if (!watching) started.end();
    return { watching: watching && this.#current === started };
  }

  close(): void {
    this.#closed = true;
    this.#current?.end();
    this.#current = null;
  }
}

interface MissingWatchesOptions extends Partial<WatchBackend> {
  /** Throws if the cap does not allow this many more paths; otherwise returns a function that releases them. */
  acquire?: ((paths: number) => () => void) | undefined;
}

/** Replaced by tests: with a manual clock, or with a system that has no watch left. */
interface WatchBackend {
  clock: Clock;
  watch: typeof watch;
}

class PathWatch {
  #notify: () => void;
  readonly #release: () => void;
  #system: WatchBackend;
  #state: "starting" | "watching" | "ended" = "starting";
  #hasChangedEarly = false;
  /** Watcher and relevant names per directory. The keys have one character per byte. */
  #directories = new Map<string, { watcher: FSWatcher; names: Set<string> }>();
  #poll: Timer | null = null;

  constructor(notify: () => void, release: () => void, system: WatchBackend) {
    this.#notify = notify;
    this.#release = release;
    this.#system = system;
  }

  /** Returns false if there is nothing to wait for: a path exists already or can never exist. */
  async start(missing: NativePath[], present: NativePath | undefined): Promise<boolean> {
    let watched = true;
    if (present !== undefined) {
      const location = locationOf(pathNames(present));
      if (location === null || (await lstat(present).catch(() => null)) === null) return false;
      watched = this.#watchName(location.directory, location.name);
    }
    for (const path of missing) {
      const outcome = await this.#watchMissingPath(path);
      if (outcome === "present") return false;
      if (outcome === "unwatchable") watched = false;
    }
    if (this.#state === "ended") return false;
    if (!watched) await this.#startPolling(missing, present);
    // The response is sent first, then a change that happened meanwhile.
    setImmediate(() => {
      if (this.#state !== "starting") return;
      this.#state = "watching";
      if (this.#hasChangedEarly) this.#changed();
    });
    return true;
  }

  end(): void {
    this.#state = "ended";
    for (const { watcher } of this.#directories.values()) watcher.close();
    this.#directories.clear();
    this.#poll?.cancel();
    this.#poll = null;
    this.#release();
  }

  /** Watches the nearest existing directory for the next name of the path. */
  async #watchMissingPath(path: NativePath): Promise<"watched" | "unwatchable" | "present"> {
    const names = pathNames(path);
    // Each iteration watches a deeper directory, so the length of the path bounds them.
    for (let depth = 0; ; ) {
      const location = await nearestExistingParent(names);
      // An existing name without a further directory is a file or a broken link.
      if (location === null || location.depth <= depth) return "present";
      depth = location.depth;
      if (!this.#watchName(location.directory, location.name)) return "unwatchable";
      // The name may have appeared between the check and the watch.
      if (!(await exists(location))) return "watched";
    }
  }

  #watchName(directory: NativePath, name: NativePath): boolean {
    // A watch that starts after the end would never be closed.
    if (this.#state === "ended") return true;
    const key = latin1Path(directory);
    const existing = this.#directories.get(key);
    if (existing !== undefined) {
      existing.names.add(latin1Path(name));
      return true;
    }
    const names = new Set([latin1Path(name)]);
    const ownName = latin1Path(pathNames(directory).at(-1) ?? "/");
    try {
      const watcher = this.#system.watch(directory, { persistent: false, encoding: "latin1" }, (_event, changed) => {
        if (changed === null || names.has(changed)) this.#changed();
        // The directory itself was moved, removed or touched; only the first two matter.
        else if (changed === ownName) this.#notifyIfMissing(directory);
      });
      watcher.on("error", () => this.#changed());
      this.#directories.set(key, { watcher, names });
      return true;
    } catch {
      return false;
    }
  }

  #notifyIfMissing(directory: NativePath): void {
    stat(directory).then(
      () => undefined,
      () => this.#changed(),
    );
  }

  #changed(): void {
    if (this.#state === "starting") this.#hasChangedEarly = true;
    if (this.#state !== "watching") return;
    this.end();
    this.#notify();
  }

  async #startPolling(missing: NativePath[], present: NativePath | undefined): Promise<void> {
    const readState = async () => {
      const missingState = await Promise.all(missing.map(fingerprint));
      const presentState = present === undefined ? "" : await fingerprint(present);
      return [...missingState, presentState].join("\n");
    };
    const before = await readState();
    const schedule = () => {
      this.#poll = this.#system.clock.after(POLL_MS, check, { keepAlive: false });
    };
    const check = () => {
      readState().then(
        (now) => {
          if (this.#state === "ended") return;
          if (now === before) schedule();
          else this.#changed();
        },
        () => this.#changed(),
      );
    };
    if (this.#state !== "ended") schedule();
  }
}

interface WatchLocation {
  directory: NativePath;
  name: NativePath;
  /** The number of names up to and including `name`. */
  depth: number;
}

/**
 * Returns the first missing name of the path, in the deepest directory that exists. Returns null if the path exists or
 * a file blocks it. A parent may appear during the lookup: the caller checks the name again.
 */
async function nearestExistingParent(names: NativePath[]): Promise<WatchLocation | null> {
  const whole = locationOf(names);
  if (whole === null || (await exists(whole))) return null;
  for (let depth = names.length; depth > 0; depth--) {
    const location = locationOf(names.slice(0, depth));
    if (location === null) return null;
    const parent = await stat(location.directory).catch(() => null);
    if (parent !== null) return parent.isDirectory() ? location : null;
  }
  return null;
}

function locationOf(names: NativePath[]): WatchLocation | null {
  const name = names.at(-1);
  if (name === undefined) return null;
  return { directory: names.slice(0, -1).reduce<NativePath>(joinNative, "/"), name, depth: names.length };
}

async function exists({ directory, name }: WatchLocation): Promise<boolean> {
  return (await lstat(joinNative(directory, name)).catch(() => null)) !== null;
}

async function fingerprint(path: NativePath): Promise<string> {
  const found = await lstat(path).catch(() => null);
  return found === null ? "missing" : `${found.dev}:${found.ino}:${found.size}:${found.mtimeMs}`;
}

/** Returns null for a path that cannot exist on this host. Throws if the text is not a path URI. */
function localPath(uri: string): NativePath | null {
  try {
    return nativePathFromUri(uri);
  } catch (error) {
    if (error instanceof RequestError && error.code === ErrorCode.invalidRequest) return null;
    throw error;
  }
}
