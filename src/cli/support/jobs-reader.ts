import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import type { JobsQuery, JobsResult } from "../../protocol/console-job-schemas.ts";
import type { JobsQueryHandler } from "../../server/console/jobs-http-api.ts";

/** Where the jobs are that a server's console shows. */
export interface JobsLocation {
  /** Directory of the jobs, one subdirectory per job. */
  folder: string;
  databaseUrl?: string | undefined;
}

/** The variable that `procwire jobs` reads, too. */
export const DATABASE_URL_VARIABLE = "PROCWIRE_DATABASE_URL";

export interface JobsThreadRequest {
  number: number;
  question: JobsQuery;
}

export interface JobsThreadResponse {
  number: number;
  answer: JobsResult;
}

/** Questions that wait at most; a page asks a few, and asks again when it is refused. */
const MAX_WAITING = 100;

/**
 * Answers job queries in a worker thread. The first query starts the thread, because most servers get none. A query after a
 * crash starts a new thread.
 */
export function startJobsThread(place: JobsLocation): JobsQueryHandler {
  const waiting = new Map<number, (answer: JobsResult) => void>();
  let thread: Worker | null = null;
  let asked = 0;
  const start = (): Worker => {
    const { Worker } = process.getBuiltinModule("node:worker_threads");
    const worker = new Worker(threadEntryPath(), { workerData: place });
    worker.unref();
    worker.on("message", ({ number, answer }: JobsThreadResponse) => {
      waiting.get(number)?.(answer);
      waiting.delete(number);
    });
    const broken = (reason: string) => {
      if (thread === worker) thread = null;
      for (const tell of waiting.values()) tell({ type: "refused", reason });
      waiting.clear();
    };
    worker.on("error", (error) => broken(`the jobs cannot be read: ${error.message}`));
    worker.on("exit", () => broken("the jobs cannot be read"));
    return worker;
  };
  return (question) => {
    if (waiting.size >= MAX_WAITING)
      return Promise.resolve({ type: "refused", reason: "too many questions about jobs wait; ask again" });
    return new Promise((resolve) => {
      thread ??= start();
      const number = ++asked;
      waiting.set(number, resolve);
      thread.postMessage({ number, question } satisfies JobsThreadRequest);
    });
  };
}

/** Returns the entry file of the thread, in the bundle or in the sources. */
function threadEntryPath(): string {
  const found = ["./jobs-reader-main.cjs", "../jobs-reader-main.ts"]
    .map((path) => join(import.meta.dirname, path))
    .find((path) => existsSync(path));
  if (found === undefined) throw new Error("the reader of jobs is not built; `npm run build` builds it");
  return found;
}
