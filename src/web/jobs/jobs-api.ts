import {
  type JobDetails,
  type JobList,
  jobDetails,
  jobList,
  MAX_PAGE_ROWS,
  type ResultsFormat,
  type RetryResult,
  type RowDetails,
  type RowPageResult,
  type RowsQuery,
  resultsPart,
  retryResult,
  rowDetails,
  rowPage,
} from "../../protocol/console/console-job-schemas.ts";
import type { Schema } from "../../protocol/schema.ts";
import { fetchSignedIn } from "../app/sign-in.ts";

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

/** Downloads all results of a job as one file. `onProgress` gets the number of rows so far. */
export async function downloadResults(
  jobId: string,
  format: ResultsFormat,
  onProgress: (rows: number, total: number) => void,
): Promise<Blob> {
  const texts: string[] = [];
  for (let offset = 0; ; ) {
    const params = new URLSearchParams({ format, offset: `${offset}`, limit: `${MAX_PAGE_ROWS}` });
    const part = await callApi(`/${encodeURIComponent(jobId)}/results?${params}`, resultsPart, {});
    texts.push(part.text);
    offset += part.rows;
    onProgress(offset, part.total);
    if (part.rows === 0 || offset >= part.total) return new Blob(texts, { type: "text/plain" });
  }
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
  const response = await fetchSignedIn(`/api/jobs${path}`, request);
  if (!response.ok) throw new Error((await response.text()).trim());
  return schema.decode(await response.json());
}
