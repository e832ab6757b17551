import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import type { JobsAnswer, JobsQuestion } from "../../protocol/console-job-schemas.ts";
import type { AskJobs } from "../../server/console/jobs-http-api.ts";

/** Where the jobs are that a server's console shows. */
export interface JobsPlace {
  /** A folder each, with its ledger unless a database has that. */
  folder: string;
  databaseUrl?: string | undefined;
}

/** What holds for `procwire jobs` holds here. */
export const DATABASE_VARIABLE = "PROCWIRE_DATABASE_URL";

export interface NumberedQuestion {
  number: number;
  question: JobsQuestion;
}

export interface NumberedAnswer {
  number: number;
  answer: JobsAnswer;
}

/** Questions that wait at most; a page asks a few, and asks again when it is refused. */
const MAX_WAITING = 100;

/**
 * Has questions about jobs answered by a thread of their own, which the first question starts: most servers are never asked.
 * One that breaks is replaced at the next question.
 */
export function askJobsOf(place: JobsPlace): AskJobs {
  const waiting = new Map<number, (answer: JobsAnswer) => void>();
  let thread: Worker | null = null;
  let asked = 0;
  const start = (): Worker => {
    const { Worker } = process.getBuiltinModule("node:worker_threads");
    const worker = new Worker(workerFile(), { workerData: place });
    worker.unref();
    worker.on("message", ({ number, answer }: NumberedAnswer) => {
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
      thread.postMessage({ number, question } satisfies NumberedQuestion);
    });
  };
}

/** Beside this file, in the bundle and in the sources. */
function workerFile(): string {
  const found = ["./jobs-reader-main.cjs", "../jobs-reader-main.ts"]
    .map((path) => join(import.meta.dirname, path))
    .find((path) => existsSync(path));
  if (found === undefined) throw new Error("the reader of jobs is not built; `npm run build` builds it");
  return found;
}
