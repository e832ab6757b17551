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

export function listJobs(signal: AbortSignal): Promise<JobList> {
  return callApi("", jobList, { signal });
}

export function showJob(jobId: string, signal: AbortSignal): Promise<JobDetails> {
  return callApi(`/${encodeURIComponent(jobId)}`, jobDetails, { signal });
}

export function listRows(jobId: string, query: RowsQuery, signal: AbortSignal): Promise<RowPageResult> {
  const params = new URLSearchParams({ offset: `${query.offset}`, limit: `${query.limit}` });
  if (query.statuses) params.set("status", query.statuses.join(","));
  if (query.errorClasses) params.set("class", query.errorClasses.join(","));
  if (query.text !== undefined) params.set("text", query.text);
  return callApi(`/${encodeURIComponent(jobId)}/rows?${params}`, rowPage, { signal });
}

export function showRow(jobId: string, itemId: string, signal: AbortSignal): Promise<RowDetails> {
  return callApi(`/${encodeURIComponent(jobId)}/rows/${encodeURIComponent(itemId)}`, rowDetails, { signal });
}

export function retryRows(
  jobId: string,
  request: { errorClasses?: readonly string[]; itemIds?: readonly string[] },
): Promise<RetryResult> {
  return callApi(`/${encodeURIComponent(jobId)}/retry`, retryResult, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
}

/** Resolves to the decoded response. Throws with the message of the server if the call fails. */
async function callApi<T>(path: string, schema: Schema<T>, request: RequestInit): Promise<T> {
  const response = await fetch(`/api/jobs${path}`, request);
  if (!response.ok) throw new Error((await response.text()).trim());
  return schema.decode(await response.json());
}
