import { messageOf } from "../../base/error-message.ts";
import {
  type JobDetails,
  type JobList,
  jobDetails,
  jobList,
  type RetryAnswer,
  type RowDetails,
  type RowPage,
  type RowsQuery,
  retryAnswer,
  rowDetails,
  rowPage,
} from "../../protocol/console-job-schemas.ts";
import type { Schema } from "../../protocol/schema.ts";

/** What the server answered, or why it did not. */
export type Told<T> = { type: "told"; value: T } | { type: "refused"; reason: string };

export function listJobs(signal: AbortSignal): Promise<Told<JobList>> {
  return ask("", jobList, { signal });
}

export function showJob(jobId: string, signal: AbortSignal): Promise<Told<JobDetails>> {
  return ask(`/${encodeURIComponent(jobId)}`, jobDetails, { signal });
}

export function listRows(jobId: string, query: RowsQuery, signal: AbortSignal): Promise<Told<RowPage>> {
  const params = new URLSearchParams({ offset: `${query.offset}`, limit: `${query.limit}` });
  if (query.statuses) params.set("status", query.statuses.join(","));
  if (query.errorClasses) params.set("class", query.errorClasses.join(","));
  if (query.text !== undefined) params.set("text", query.text);
  return ask(`/${encodeURIComponent(jobId)}/rows?${params}`, rowPage, { signal });
}

export function showRow(jobId: string, itemId: string, signal: AbortSignal): Promise<Told<RowDetails>> {
  return ask(`/${encodeURIComponent(jobId)}/rows/${encodeURIComponent(itemId)}`, rowDetails, { signal });
}

export function retryRows(
  jobId: string,
  request: { errorClasses?: readonly string[]; itemIds?: readonly string[] },
): Promise<Told<RetryAnswer>> {
  return ask(`/${encodeURIComponent(jobId)}/retry`, retryAnswer, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
}

async function ask<T>(path: string, schema: Schema<T>, request: RequestInit): Promise<Told<T>> {
  try {
    const answer = await fetch(`/api/jobs${path}`, request);
    if (!answer.ok) return { type: "refused", reason: (await answer.text()).trim() };
    return { type: "told", value: schema.decode(await answer.json()) };
  } catch (error) {
    return { type: "refused", reason: messageOf(error) };
  }
}
