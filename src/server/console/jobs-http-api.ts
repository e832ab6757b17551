import { errorMessage } from "../../base/error-message.ts";
import {
  errorClass,
  type JobsQuery,
  type JobsResult,
  MAX_PAGE_ROWS,
  type RowsQuery,
  resultsFormat,
  retryRequest,
  rowStatus,
} from "../../protocol/console/console-job-schemas.ts";
import type { Schema } from "../../protocol/schema.ts";
import { isServerUser, type Principal } from "../auth/principal.ts";
import { type ApiResponse, textResponse } from "./sign-in-http-api.ts";

/** Handles queries about the fan-out jobs of this host. The server gets it from its host. */
export type JobsQueryHandler = (query: JobsQuery) => Promise<JobsResult>;

/** A request below `/api/jobs`. */
export interface JobsRequest {
  method: string;
  /** Request target, including the query string. */
  target: string;
  body(): Promise<string | null>;
}

/** Longer than any search text that users type. */
const MAX_TEXT_CHARS = 1_000;

/** Handles a request for jobs. Resolves to null if the path is not below `/api/jobs`. */
export async function handleJobsRequest(
  runQuery: JobsQueryHandler | undefined,
  principal: Principal | null,
  request: JobsRequest,
): Promise<ApiResponse | null> {
  const target = parseTarget(request.target);
  if (!target) return null;
  const { names, query: parameters } = target;
  if (!principal) return textResponse(401, "sign in first");
  // Jobs are files of the user that runs the server.
  if (principal.role !== "operator" && !isServerUser(principal)) return textResponse(403, "jobs require an operator");
  if (!runQuery) return textResponse(404, "jobs are disabled; start the server with `--jobs DIR`");
  const method = isRetry(names) ? "POST" : "GET";
  if (request.method !== method) return textResponse(405, `method not allowed; use ${method}`);
  let query: JobsQuery | null;
  try {
    query = await parseJobsQuery(names, parameters, request);
  } catch (error) {
    return textResponse(400, errorMessage(error));
  }
  try {
    return query ? reply(await runQuery(query)) : textResponse(404, "not found");
  } catch (error) {
    return textResponse(500, errorMessage(error));
  }
}

/** Returns the id of the job that a POST request to this target retries, percent-encoded. Null for another target. */
export function findRetriedJob(target: string): string | null {
  const { names } = parseTarget(target) ?? { names: [] };
  return isRetry(names) ? (names[0] ?? null) : null;
}

/** Returns the percent-encoded names below `/api/jobs`, and the query string. Null for another path. */
function parseTarget(target: string): { names: string[]; query: URLSearchParams } | null {
  const url = URL.parse(target, "http://here");
  const [, api, jobs, ...names] = url?.pathname.split("/") ?? [];
  return url && api === "api" && jobs === "jobs" ? { names, query: url.searchParams } : null;
}

const isRetry = (names: readonly string[]) => names.length === 2 && names[1] === "retry";

function reply(result: JobsResult): ApiResponse {
  switch (result.type) {
    case "found":
      return { status: 200, body: result.json, isJson: true };
    case "missing":
      return textResponse(404, result.reason);
    case "refused":
      return textResponse(409, result.reason);
  }
}

async function parseJobsQuery(
  [encodedJobId, part, encodedItemId, ...more]: string[],
  query: URLSearchParams,
  request: JobsRequest,
): Promise<JobsQuery | null> {
  if (more.length > 0) return null;
  const [jobId, itemId] = [encodedJobId, encodedItemId].map((name) => name && decodeURIComponent(name));
  if (jobId === undefined || jobId === "") return { type: "list" };
  if (part === undefined) return { type: "job", jobId };
  if (part === "rows" && itemId !== undefined) return { type: "row", jobId, itemId };
  if (part === "rows") return { type: "rows", jobId, query: rowsQuery(query) };
  if (part === "results" && itemId === undefined) {
    const { offset, limit } = rowsQuery(query);
    return { type: "results", jobId, format: resultsFormat.decode(query.get("format") ?? "csv"), offset, limit };
  }
  if (part !== "retry" || itemId !== undefined) return null;
  const body = await request.body();
  if (body === null) throw new Error("the request body is too large");
  return { type: "retry", jobId, request: retryRequest.decode(JSON.parse(body)) };
}

function rowsQuery(query: URLSearchParams): RowsQuery {
  const search = query.get("text") ?? "";
  if (search.length > MAX_TEXT_CHARS) throw new Error(`\`text\` must have at most ${MAX_TEXT_CHARS} characters`);
  return {
    offset: count(query, "offset", 0, Number.MAX_SAFE_INTEGER),
    limit: count(query, "limit", MAX_PAGE_ROWS, MAX_PAGE_ROWS),
    statuses: words(query, "status", rowStatus),
    errorClasses: words(query, "class", errorClass),
    text: search === "" ? undefined : search,
  };
}

function count(query: URLSearchParams, name: string, fallback: number, max: number): number {
  const given = query.get(name);
  if (given === null) return fallback;
  if (/^\d+$/.test(given) && Number(given) <= max) return Number(given);
  throw new Error(`\`${name}\` must be a whole number from 0 to ${max}, got \`${given}\``);
}

function words<T>(query: URLSearchParams, name: string, schema: Schema<T>): T[] | undefined {
  const given = query.get(name);
  return given === null || given === "" ? undefined : given.split(",").map((word) => schema.decode(word));
}
