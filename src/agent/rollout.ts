import { appendFileSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { isObject, type JsonObject } from "./api/response-events.ts";

/** A thread's name is part of a path. */
const THREAD_ID = /^[0-9A-Za-z][0-9A-Za-z-]{0,99}$/;

/**
 * What was said in a thread, a line each as it goes on, in a file that only its owner reads: what a later run goes on from.
 * A line that was cut off by a crash is left out when it is read.
 */
export class Rollout {
  readonly #file: string;

  constructor(home: string, threadId: string) {
    mkdirSync(home, { recursive: true, mode: 0o700 });
    this.#file = fileOf(home, threadId);
  }

  append(item: JsonObject): void {
    appendFileSync(this.#file, `${JSON.stringify(item)}\n`, { mode: 0o600 });
  }
}

/** What was said in a thread so far, or null when there is none of that name. */
export function readRollout(home: string, threadId: string): JsonObject[] | null {
  if (!THREAD_ID.test(threadId)) return null;
  try {
    return withAnswers(readFileSync(fileOf(home, threadId), "utf8").split("\n").flatMap(itemOf));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw error;
  }
}

/** The thread with the most recent activity. */
export function latestThread(home: string): string | null {
  let names: string[];
  try {
    names = readdirSync(home).filter((name) => name.endsWith(SUFFIX));
  } catch {
    return null;
  }
  const times = names.map((name) => ({ name, at: statSync(path.join(home, name)).mtimeMs }));
  const [latest] = times.toSorted((a, b) => b.at - a.at);
  return latest ? latest.name.slice(0, -SUFFIX.length) : null;
}

/** `$PROCWIRE_HOME/threads`, else in the user's home: threads belong to a user, not to a directory. */
export function threadsHome(env: NodeJS.ProcessEnv, userHome: string): string {
  return path.resolve(env.PROCWIRE_HOME || path.join(userHome, ".procwire"), "threads");
}

const SUFFIX = ".jsonl";

function fileOf(home: string, threadId: string): string {
  return path.join(home, `${threadId}${SUFFIX}`);
}

function itemOf(line: string): JsonObject[] {
  try {
    const item: unknown = JSON.parse(line);
    return isObject(item) ? [item] : [];
  } catch {
    return [];
  }
}

/** A call that was interrupted has no answer, and the API takes no call without one. */
function withAnswers(items: readonly JsonObject[]): JsonObject[] {
  const answered = new Set(
    items.flatMap((item) => (item.type === "function_call_output" ? [item.call_id] : [])),
  );
  return items.flatMap((item) =>
    item.type === "function_call" && !answered.has(item.call_id)
      ? [item, { type: "function_call_output", call_id: item.call_id, output: "aborted" }]
      : [item],
  );
}
