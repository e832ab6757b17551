import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import type { JobsQuery, JobsResult } from "../../protocol/console/console-job-schemas.ts";
import type { JobsQueryHandler } from "../../server/console/jobs-http-api.ts";

/** Directory or database of the jobs that the console shows. */
export interface JobsLocation {
  /** Directory of the jobs, one subdirectory per job. */
  directory: string;
  databaseUrl?: string | undefined;
}

/** Environment variable with the database URL, also read by `procwire jobs`. */
export const DATABASE_URL_VARIABLE = "PROCWIRE_DATABASE_URL";

export interface JobsThreadRequest {
  id: number;
  query: JobsQuery;
}

export interface JobsThreadResponse {
  id: number;
  result: JobsResult;
}

/** Maximum number of waiting queries. A console has a few, and repeats a rejected one. */
const MAX_WAITING = 100;

/**
 * Answers job queries in a worker thread. The first query starts the thread, because most servers get none. A query after a
 * crash starts a new thread.
 */
export function startJobsThread(location: JobsLocation): JobsQueryHandler {
  const waiting = new Map<number, (result: JobsResult) => void>();
  let thread: Worker | null = null;
  let lastId = 0;
  const start = (): Worker => {
    const { Worker } = process.getBuiltinModule("node:worker_threads");
    const worker = new Worker(threadEntryPath(), { workerData: location });
    worker.unref();
    worker.on("message", ({ id, result }: JobsThreadResponse) => {
      waiting.get(id)?.(result);
      waiting.delete(id);
    });
    const onEnd = (reason: string) => {
      // The exit of a crashed thread follows its error, and the next thread may have queries by then.
      if (thread !== worker) return;
      thread = null;
      for (const resolve of waiting.values()) resolve({ type: "refused", reason });
      waiting.clear();
    };
    worker.on("error", (error) => onEnd(`cannot read jobs: ${error.message}`));
    worker.on("exit", () => onEnd("cannot read jobs: the reader exited"));
    return worker;
  };
  return (query) => {
    if (waiting.size >= MAX_WAITING)
      return Promise.resolve({ type: "refused", reason: "too many job queries in flight; try again" });
    return new Promise((resolve) => {
      thread ??= start();
      const id = ++lastId;
      waiting.set(id, resolve);
      thread.postMessage({ id, query } satisfies JobsThreadRequest);
    });
  };
}

/** Returns the entry file of the thread, in the bundle or in the sources. */
function threadEntryPath(): string {
  const found = ["./jobs-reader-main.cjs", "../jobs-reader-main.ts"]
    .map((path) => join(import.meta.dirname, path))
    .find((path) => existsSync(path));
  if (found === undefined) throw new Error("cannot read jobs: jobs-reader-main is missing; run `npm run build`");
  return found;
}
