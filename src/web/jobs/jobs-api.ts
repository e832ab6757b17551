import { errorMessage } from "../../base/error-message.ts";
import {
  type JobDetails,
  type JobList,
  jobDetails,
  jobList,
  type RetryResult,
  type RowDetails,
  type RowPageResult,
  type RowsQuery,
  retryResult,
  rowDetails,
  rowPage,
} from "../../protocol/console-job-schemas.ts";
import type { Schema } from "../../protocol/schema.ts";

/** Result of an API call: the decoded value, or the reason of the failure. */
export type ApiResult<T> = { type: "found"; value: T } | { type: "refused"; reason: string };

export function listJobs(signal: AbortSignal): Promise<ApiResult<JobList>> {
  return ask("", jobList, { signal });
}

export function showJob(jobId: string, signal: AbortSignal): Promise<ApiResult<JobDetails>> {
  return ask(`/${encodeURIComponent(jobId)}`, jobDetails, { signal });
}

export function listRows(
  jobId: string,
  query: RowsQuery,
  signal: AbortSignal,
): Promise<ApiResult<RowPageResult>> {
  const params = new URLSearchParams({ offset: `${query.offset}`, limit: `${query.limit}` });
  if (query.statuses) params.set("status", query.statuses.join(","));
  if (query.errorClasses) params.set("class", query.errorClasses.join(","));
  if (query.text !== undefined) params.set("text", query.text);
  return ask(`/${encodeURIComponent(jobId)}/rows?${params}`, rowPage, { signal });
}

export function showRow(jobId: string, itemId: string, signal: AbortSignal): Promise<ApiResult<RowDetails>> {
  return ask(`/${encodeURIComponent(jobId)}/rows/${encodeURIComponent(itemId)}`, rowDetails, { signal });
}

export function retryRows(
  jobId: string,
  request: { errorClasses?: readonly string[]; itemIds?: readonly string[] },
): Promise<ApiResult<RetryResult>> {
  return ask(`/${encodeURIComponent(jobId)}/retry`, retryResult, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
}

async function ask<T>(path: string, schema: Schema<T>, request: RequestInit): Promise<ApiResult<T>> {
  try {
    const answer = await fetch(`/api/jobs${path}`, request);
    if (!answer.ok) return { type: "refused", reason: (await answer.text()).trim() };
    return { type: "found", value: schema.decode(await answer.json()) };
  } catch (error) {
    return { type: "refused", reason: errorMessage(error) };
  }
}
