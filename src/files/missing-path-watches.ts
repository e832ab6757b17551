import { type FSWatcher, watch } from "node:fs";
import { lstat, stat } from "node:fs/promises";
import { type Clock, systemClock, type Timer } from "../async/clock.ts";
import { ErrorCode, RequestError } from "../protocol/errors.ts";
import type { MissingWatchTable, WatchMissingParams } from "./file-system.ts";
import { joinNative, type NativePath, nativePathFromUri, pathNames } from "./native-path.ts";

/** Each path may cost a watch of the system, of which a user has few; upstream's number. */
export const MAX_MISSING_PATHS = 64;

/** How often paths are looked at where the system has no watch left to give. */
export const POLL_MS = 1000;

/**
 * Tells a connection that paths which were missing may be there now. One watch at a time: a greater id ends the one
 * before it, also when the new one is refused. A watch tells once, on any change that concerns its paths (a missing
 * parent appearing counts, and so does a change of the `present` file); the client looks again and asks anew.
 */
export class MissingWatches implements MissingWatchTable {
  #onChanged: (watchId: number) => void;
  readonly #enter: (paths: number) => () => void;
  #system: System;
  #lastId = 0;
  #current: PathWatch | null = null;
  #closed = false;

  constructor(onChanged: (watchId: number) => void, { enter, ...system }: MissingWatchesOptions = {}) {
    this.#onChanged = onChanged;
    this.#enter = enter ?? (() => () => undefined);
    this.#system = { clock: systemClock, watch, ...system };
  }

  async watchMissing(params: WatchMissingParams): Promise<{ watching: boolean }> {
    const missing = params.missing.map(pathOfThisHost);
    const present = params.present === undefined ? undefined : pathOfThisHost(params.present);
    const { watchId } = params;
    if (this.#closed || watchId <= this.#lastId) return { watching: false };
    this.#lastId = watchId;
    this.#current?.end();
    this.#current = null;
    if (missing.length === 0 || missing.length > MAX_MISSING_PATHS) return { watching: false };

    const paths = missing.filter((path) => path !== null);
    if (paths.length < missing.length || present === null) return { watching: false };
    const started = new PathWatch(() => this.#onChanged(watchId), this.#enter(paths.length), this.#system);
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

interface MissingWatchesOptions extends Partial<System> {
  /** May refuse to watch so many paths more by throwing, and gives how to leave. */
  enter?: ((paths: number) => () => void) | undefined;
}

/** What watching rests on; tests put a clock of their own here, or a system that has no watch left. */
interface System {
  clock: Clock;
  watch: typeof watch;
}

class PathWatch {
  #tell: () => void;
  readonly #leave: () => void;
  #system: System;
  #state: "starting" | "watching" | "ended" = "starting";
  #changedEarly = false;
  /** By directory, one character a byte: its watcher and the names that matter in it. */
  #directories = new Map<string, { watcher: FSWatcher; names: Set<string> }>();
  #poll: Timer | null = null;

  constructor(tell: () => void, leave: () => void, system: System) {
    this.#tell = tell;
    this.#leave = leave;
    this.#system = system;
  }

  /** False when there is nothing to wait for: a path is there already, or can never be. */
  async start(missing: NativePath[], present: NativePath | undefined): Promise<boolean> {
    let watched = true;
    if (present !== undefined) {
      const place = placeOf(pathNames(present));
      if (place === null || (await lstat(present).catch(() => null)) === null) return false;
      watched = this.#watchName(place.directory, place.name);
    }
    for (const path of missing) {
      const outcome = await this.#watchMissingPath(path);
      if (outcome === "present") return false;
      if (outcome === "unwatchable") watched = false;
    }
    if (this.#state === "ended") return false;
    if (!watched) await this.#startPolling(missing, present);
    // The answer goes out first, then what changed meanwhile.
    setImmediate(() => {
      if (this.#state !== "starting") return;
      this.#state = "watching";
      if (this.#changedEarly) this.#changed();
    });
    return true;
  }

  end(): void {
    this.#state = "ended";
    for (const { watcher } of this.#directories.values()) watcher.close();
    this.#directories.clear();
    this.#poll?.cancel();
    this.#poll = null;
    this.#leave();
  }

  /** Watches the nearest directory that is there for the name that leads on towards the path. */
  async #watchMissingPath(path: NativePath): Promise<"watched" | "unwatchable" | "present"> {
    const names = pathNames(path);
    // Each turn goes at least one directory deeper than the last, so the path's own length bounds them.
    for (let turn = 0; turn <= names.length; turn++) {
      const place = await nearestPlace(names);
      if (place === null) return "present";
      if (!this.#watchName(place.directory, place.name)) return "unwatchable";
      // Did the name appear between the look and the watch?
      const next = await lstat(joinNative(place.directory, place.name)).catch(() => null);
      if (next === null) return "watched";
      if (!next.isDirectory()) return "present";
    }
    return "present";
  }

  #watchName(directory: NativePath, name: NativePath): boolean {
    // A watch begun after the end would never be closed.
    if (this.#state === "ended") return true;
    const key = latin1(directory);
    const existing = this.#directories.get(key);
    if (existing !== undefined) {
      existing.names.add(latin1(name));
      return true;
    }
    const names = new Set([latin1(name)]);
    const ownName = latin1(pathNames(directory).at(-1) ?? "/");
    try {
      const watcher = this.#system.watch(
        directory,
        { persistent: false, encoding: "latin1" },
        (_event, changed) => {
          if (changed === null || names.has(changed)) this.#changed();
          // The directory itself was moved, removed or touched: only the first two matter.
          else if (changed === ownName) this.#changedIfGone(directory);
        },
      );
      watcher.on("error", () => this.#changed());
      this.#directories.set(key, { watcher, names });
      return true;
    } catch {
      return false;
    }
  }

  #changedIfGone(directory: NativePath): void {
    stat(directory).then(
      () => undefined,
      () => this.#changed(),
    );
  }

  #changed(): void {
    if (this.#state === "starting") this.#changedEarly = true;
    if (this.#state !== "watching") return;
    this.end();
    this.#tell();
  }

  async #startPolling(missing: NativePath[], present: NativePath | undefined): Promise<void> {
    const look = async () => {
      const found = await Promise.all(missing.map(fingerprint));
      const kept = present === undefined ? "" : await fingerprint(present);
      return [...found, kept].join("\n");
    };
    const before = await look();
    const again = () => {
      this.#poll = this.#system.clock.after(POLL_MS, check, { keepAlive: false });
    };
    const check = () => {
      look().then(
        (now) => {
          if (this.#state === "ended") return;
          if (now === before) again();
          else this.#changed();
        },
        () => this.#changed(),
      );
    };
    if (this.#state !== "ended") again();
  }
}

interface Place {
  directory: NativePath;
  name: NativePath;
}

/** Null when the path is there, or when something that is no directory stands in its way. */
async function nearestPlace(names: NativePath[]): Promise<Place | null> {
  for (let length = names.length; length > 0; length--) {
    const place = placeOf(names.slice(0, length));
    if (place === null) return null;
    const there = await lstat(joinNative(place.directory, place.name)).catch(() => null);
    if (there !== null) return null;
    const parent = await stat(place.directory).catch(() => null);
    if (parent !== null) return parent.isDirectory() ? place : null;
  }
  return null;
}

function placeOf(names: NativePath[]): Place | null {
  const name = names.at(-1);
  if (name === undefined) return null;
  return { directory: names.slice(0, -1).reduce<NativePath>(joinNative, "/"), name };
}

async function fingerprint(path: NativePath): Promise<string> {
  const found = await lstat(path).catch(() => null);
  return found === null ? "missing" : `${found.dev}:${found.ino}:${found.size}:${found.mtimeMs}`;
}

/** Null for a path that can be on no disk of this machine; text that is no path URI is an error. */
function pathOfThisHost(uri: string): NativePath | null {
  try {
    return nativePathFromUri(uri);
  } catch (error) {
    if (error instanceof RequestError && error.code === ErrorCode.invalidRequest) return null;
    throw error;
  }
}

function latin1(path: NativePath): string {
  return Buffer.from(path).toString("latin1");
}
