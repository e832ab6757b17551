import * as schemas from "../../protocol/console/console-job-schemas.ts";
import type { Schema } from "../../protocol/schema.ts";
import { fetchSignedIn } from "../app/sign-in.ts";

export function listJobs(signal: AbortSignal): Promise<schemas.JobList> {
  return callApi("", schemas.jobList, { signal });
}

export function showJob(jobId: string, signal: AbortSignal): Promise<schemas.JobDetails> {
  return callApi(`/${encodeURIComponent(jobId)}`, schemas.jobDetails, { signal });
}

export function listRows(jobId: string, query: schemas.RowsQuery, signal: AbortSignal): Promise<schemas.RowPageResult> {
  const params = new URLSearchParams({ offset: `${query.offset}`, limit: `${query.limit}` });
  if (query.statuses) params.set("status", query.statuses.join(","));
  if (query.errorClasses) params.set("class", query.errorClasses.join(","));
  if (query.text !== undefined) params.set("text", query.text);
  return callApi(`/${encodeURIComponent(jobId)}/rows?${params}`, schemas.rowPage, { signal });
}

export function showRow(jobId: string, itemId: string, signal: AbortSignal): Promise<schemas.RowDetails> {
  return callApi(`/${encodeURIComponent(jobId)}/rows/${encodeURIComponent(itemId)}`, schemas.rowDetails, { signal });
}

/** Downloads all results of a job as one file. `onProgress` gets the number of rows so far. */
export async function downloadResults(
  jobId: string,
  format: schemas.ResultsFormat,
  onProgress: (rows: number, total: number) => void,
): Promise<Blob> {
  const texts: string[] = [];
  for (let offset = 0; ; ) {
    const params = new URLSearchParams({ format, offset: `${offset}`, limit: `${schemas.MAX_PAGE_ROWS}` });
    const part = await callApi(`/${encodeURIComponent(jobId)}/results?${params}`, schemas.resultsPart, {});
    texts.push(part.text);
    offset += part.rows;
    onProgress(offset, part.total);
    if (part.rows === 0 || offset >= part.total) return new Blob(texts, { type: "text/plain" });
  }
}

export function retryRows(
  jobId: string,
  request: { errorClasses?: readonly string[]; itemIds?: readonly string[] },
): Promise<schemas.RetryResult> {
  return callApi(`/${encodeURIComponent(jobId)}/retry`, schemas.retryResult, {
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
