import { stat } from "node:fs";
import { internalError } from "../protocol/errors.ts";
import { loadAddon } from "./load-addon.ts";

/** Default and maximum size of libuv's thread pool. */
const DEFAULT_THREADS = 4;
const MAX_THREADS = 1024;

let isStarted = false;

/**
 * Starts libuv's thread pool, which performs file and DNS requests. Returns false if the threads cannot be created. Node
 * creates all of them with the first request and aborts if it cannot, which would kill the processes of all clients. So
 * they are created early, and only after a test.
 */
export function startLibuvThreads(): boolean {
  if (isStarted) return true;
  const native = loadAddon();
  if (native.type === "loaded" && !native.addon.canMakeThreads(threadCount())) return false;
  stat("/", () => undefined);
  isStarted = true;
  return true;
}

/** Throws if the thread pool cannot be started. Called before a request that needs it. */
export function requireLibuvThreads(): void {
  if (!startLibuvThreads())
    throw internalError(
      "cannot start libuv threads: process limit reached; raise `ulimit -u` or the pids limit of the container",
    );
}

function threadCount(): number {
  const { UV_THREADPOOL_SIZE: size } = process.env;
  if (size === undefined) return DEFAULT_THREADS;
  const count = Number.parseInt(size, 10);
  return Math.min(MAX_THREADS, Math.max(1, Number.isNaN(count) ? 1 : count));
}
