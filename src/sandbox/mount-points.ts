import { closeSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { type Clock, sleep, systemClock } from "../async/clock.ts";
import { openPlace } from "./inherited-fds.ts";

/** Between two looks at whether a mount point is still in use; a killed sandbox is gone within a few milliseconds. */
const LOOK_EVERY_MS = 20;
/** After this many looks the folder is left where it is: a process outside of our reach still has it mounted. */
const MOST_LOOKS = 250;

interface Held {
  /** Sandboxes that have it mounted, or are about to. */
  count: number;
}

/**
 * Empty folders that serve as mount points. A protected path that does not exist cannot be covered by a mount, and a command
 * behind the walls could create it: so an empty folder is put in its place, and removed once no sandbox has it mounted any
 * more. Removing it earlier would detach the mount from the sandboxes that still use it.
 */
export class MountPoints {
  readonly #held = new Map<string, Held>();
  readonly #clock: Clock;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Whether what is at this path is a folder of ours. */
  has(path: string): boolean {
    return this.#held.has(path);
  }

  /** Makes the folder unless it is there; `release` it as often as it was held. The path is free of links. */
  hold(path: string): void {
    const held = this.#held.get(path);
    if (held) {
      held.count++;
      return;
    }
    inParent(path, mkdirSync);
    this.#held.set(path, { count: 1 });
  }

  async release(path: string): Promise<void> {
    const held = this.#held.get(path);
    if (!held) return;
    held.count--;
    for (let looks = 0; held.count === 0 && this.#held.get(path) === held; looks++) {
      if (isStoodOn(path) && looks < MOST_LOOKS) {
        await sleep(this.#clock, LOOK_EVERY_MS);
        continue;
      }
      this.#held.delete(path);
      if (looks >= MOST_LOOKS) return;
      try {
        inParent(path, rmdirSync);
      } catch {
        // Gone already, or a program outside of the walls has put something into it and keeps it.
      }
    }
  }
}

/** Calls `what` with a path through the opened parent folder, so that no link on the way leads elsewhere. */
function inParent(path: string, what: (path: string) => unknown): void {
  const parent = openPlace(dirname(path));
  try {
    what(`/proc/self/fd/${parent}/${basename(path)}`);
  } finally {
    closeSync(parent);
  }
}

/** Has any process that we can look at, of another server's walls too, something mounted there? */
function isStoodOn(path: string): boolean {
  const ours = readlinkSync("/proc/self/ns/mnt");
  const field = ` ${path.replace(/[\\ \t\n]/g, (char) => `\\${char.charCodeAt(0).toString(8).padStart(3, "0")}`)} `;
  return readdirSync("/proc").some((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      if (readlinkSync(`/proc/${name}/ns/mnt`) === ours) return false;
      return readFileSync(`/proc/${name}/mountinfo`, "utf8").includes(field);
    } catch {
      // The process is gone, or belongs to another user.
      return false;
    }
  });
}
