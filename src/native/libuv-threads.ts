import { stat } from "node:fs";
import { internalError } from "../protocol/errors.ts";
import { loadAddon } from "./addon.ts";

/** libuv's own numbers: how many threads it makes, and the most it would. */
const DEFAULT_THREADS = 4;
const MAX_THREADS = 1024;

let made = false;

/**
 * Makes the threads on which Node asks the system for files and host names; false when there is no room for them. Node
 * makes all of them with the first request that needs one, and aborts the program if it cannot, and with it everybody's
 * processes. So they are made early, and only after a test that there is room.
 */
export function makeNodeThreads(): boolean {
  if (made) return true;
  const native = loadAddon();
  if (native.type === "loaded" && !native.addon.canMakeThreads(threadCount())) return false;
  stat("/", () => undefined);
  made = true;
  return true;
}

/** Called before a request that runs on these threads. */
export function requireNodeThreads(): void {
  if (!makeNodeThreads())
    throw internalError(
      "cannot make the threads that this runs on: the limit of processes, of this user (`ulimit -u`) or of this container, is reached",
    );
}

function threadCount(): number {
  const { UV_THREADPOOL_SIZE: wanted } = process.env;
  if (wanted === undefined) return DEFAULT_THREADS;
  const count = Number.parseInt(wanted, 10);
  return Math.min(MAX_THREADS, Math.max(1, Number.isNaN(count) ? 1 : count));
}
