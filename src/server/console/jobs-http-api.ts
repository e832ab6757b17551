import { messageOf } from "../../base/error-message.ts";
import {
  errorClass,
  type JobsAnswer,
  type JobsQuestion,
  MAX_PAGE_ROWS,
  type RowsQuery,
  retryRequest,
  rowStatus,
} from "../../protocol/console-job-schemas.ts";
import type { Schema } from "../../protocol/schema.ts";
import type { Principal } from "../principal.ts";

/** Whoever knows the fan-out jobs of this machine. A server is given one, and knows no job itself. */
export type AskJobs = (question: JobsQuestion) => Promise<JobsAnswer>;

/** A request for something below `/api/jobs`. */
export interface JobsRequest {
  method: string;
  /** With its query, as it stood in the request. */
  target: string;
  body(): Promise<string | null>;
}

export interface JobsReply {
  status: number;
  body: string;
  isJson: boolean;
}

/** Longer than any text that a person looks for. */
const MAX_TEXT_CHARS = 1_000;

/**
 * Jobs are files of the user this server runs as: only who may see everything here may see them, and the person who has
 * started it.
 */
export function maySeeJobs(principal: Principal | null): boolean {
  return principal !== null && (principal.role === "operator" || principal.id === "local");
}

/** Answers a request about jobs; null: this is none. */
export async function answerJobs(
  ask: AskJobs | undefined,
  principal: Principal | null,
  request: JobsRequest,
): Promise<JobsReply | null> {
  const url = URL.parse(request.target, "http://here");
  const [, api, jobs, ...names] = url?.pathname.split("/") ?? [];
  if (!url || api !== "api" || jobs !== "jobs") return null;
  if (!principal) return text(401, "sign in first");
  if (!maySeeJobs(principal)) return text(403, "jobs are for operators");
  if (!ask) return text(404, "start the server with `--jobs FOLDER` to have jobs here");
  const wanted = names.length === 2 && names[1] === "retry" ? "POST" : "GET";
  if (request.method !== wanted) return text(405, `only ${wanted} is answered here`);
  try {
    const question = await questionOf(names.map(decodeURIComponent), url.searchParams, request);
    return question ? reply(await ask(question)) : text(404, "there is no such page");
  } catch (error) {
    return text(400, messageOf(error));
  }
}

function reply(answer: JobsAnswer): JobsReply {
  switch (answer.type) {
    case "told":
      return { status: 200, body: answer.json, isJson: true };
    case "missing":
      return text(404, answer.reason);
    case "refused":
      return text(409, answer.reason);
  }
}

async function questionOf(
  [jobId, part, itemId, ...more]: string[],
  query: URLSearchParams,
  request: JobsRequest,
): Promise<JobsQuestion | null> {
  if (more.length > 0) return null;
  if (jobId === undefined || jobId === "") return { type: "list" };
  if (part === undefined) return { type: "job", jobId };
  if (part === "rows" && itemId !== undefined) return { type: "row", jobId, itemId };
  if (part === "rows") return { type: "rows", jobId, query: rowsQuery(query) };
  if (part !== "retry" || itemId !== undefined) return null;
  const body = await request.body();
  if (body === null) throw new Error("the body is too long");
  return { type: "retry", jobId, request: retryRequest.decode(JSON.parse(body)) };
}

function rowsQuery(query: URLSearchParams): RowsQuery {
  const found = query.get("text") ?? "";
  if (found.length > MAX_TEXT_CHARS) throw new Error(`\`text\` takes at most ${MAX_TEXT_CHARS} characters`);
  return {
    offset: count(query, "offset", 0, Number.MAX_SAFE_INTEGER),
    limit: count(query, "limit", MAX_PAGE_ROWS, MAX_PAGE_ROWS),
    statuses: words(query, "status", rowStatus),
    errorClasses: words(query, "class", errorClass),
    text: found === "" ? undefined : found,
  };
}

function count(query: URLSearchParams, name: string, fallback: number, most: number): number {
  const given = query.get(name);
  if (given === null) return fallback;
  const value = /^\d+$/.test(given) ? Number(given) : Number.NaN;
  if (value <= most) return value;
  throw new Error(`\`${name}\` takes a whole number from 0 to ${most}, got \`${given}\``);
}

function words<T>(query: URLSearchParams, name: string, schema: Schema<T>): T[] | undefined {
  const given = query.get(name);
  return given === null || given === "" ? undefined : given.split(",").map((word) => schema.decode(word));
}

function text(status: number, reason: string): JobsReply {
  return { status, body: `${reason}\n`, isJson: false };
}
