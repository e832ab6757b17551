import { closeSync, fstatSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { hasErrorCode } from "../base/error-code.ts";
import { isObject } from "../base/type-guards.ts";
import { OutputDirectory } from "../files/output-directory.ts";
import type { JsonObject } from "./api/response-events.ts";

/** The thread id is part of a path. */
const THREAD_ID = /^[0-9A-Za-z][0-9A-Za-z-]{0,99}$/;

/**
 * A stored thread: one line per item, in a file that only its owner can read. A later run resumes from it. The reader
 * ignores a line that a crash truncated. The file stays open, so that a command that replaces it cannot redirect later
 * lines.
 */
export class Rollout implements Disposable {
  readonly #fd: number;

  constructor(home: string, threadId: string) {
    using directory = OutputDirectory.open(home, { make: true, mode: 0o700 });
    this.#fd = directory.openAppend(path.basename(rolloutPath(home, threadId)));
    // Ends a line that a crash truncated. The reader ignores an empty line.
    if (fstatSync(this.#fd).size > 0) writeFileSync(this.#fd, "\n");
  }

  append(item: JsonObject): void {
    writeFileSync(this.#fd, `${JSON.stringify(item)}\n`);
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }
}

/** Returns the items of a thread, or null if the thread does not exist. */
export function readRollout(home: string, threadId: string): JsonObject[] | null {
  if (!THREAD_ID.test(threadId)) return null;
  try {
    return closeInterruptedCalls(readFileSync(rolloutPath(home, threadId), "utf8").split("\n").flatMap(parseItem));
  } catch (error) {
    if (hasErrorCode(error, "ENOENT")) return null;
    throw error;
  }
}

/** Returns the id of the thread with the most recent activity, or null if there is no thread. */
export function latestThreadId(home: string): string | null {
  let names: string[];
  try {
    names = readdirSync(home).filter((name) => name.endsWith(SUFFIX));
  } catch {
    return null;
  }
  // A file may be removed after it was listed.
  const times = names.flatMap((name) => {
    const at = statSync(path.join(home, name), { throwIfNoEntry: false })?.mtimeMs;
    return at === undefined ? [] : [{ name, at }];
  });
  const [latest] = times.toSorted((a, b) => b.at - a.at);
  return latest ? latest.name.slice(0, -SUFFIX.length) : null;
}

/**
 * Returns `$PROCWIRE_HOME/threads`, or a directory in the user's home: threads belong to a user, not to a working
 * directory.
 */
export function threadsDirectory(env: NodeJS.ProcessEnv, userHome: string): string {
  return path.resolve(env.PROCWIRE_HOME || path.join(userHome, ".procwire"), "threads");
}

const SUFFIX = ".jsonl";

function rolloutPath(home: string, threadId: string): string {
  return path.join(home, `${threadId}${SUFFIX}`);
}

function parseItem(line: string): JsonObject[] {
  try {
    const item: unknown = JSON.parse(line);
    return isObject(item) ? [item] : [];
  } catch {
    return [];
  }
}

/** Adds an output to each interrupted tool call, because the API rejects calls without an output. */
function closeInterruptedCalls(items: readonly JsonObject[]): JsonObject[] {
  const answered = new Set(items.flatMap((item) => (item.type === "function_call_output" ? [item.call_id] : [])));
  return items.flatMap((item) =>
    item.type === "function_call" && !answered.has(item.call_id)
      ? [item, { type: "function_call_output", call_id: item.call_id, output: "aborted" }]
      : [item],
  );
}
