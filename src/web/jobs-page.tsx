import { useState } from "preact/hooks";
import type { JobList } from "../protocol/job-schemas.ts";
import { listJobs, type Told } from "./jobs-api.ts";
import { hrefOf } from "./route.ts";
import { useLooks } from "./use-looks.ts";
import { age, count, money } from "./words.ts";

const LOOK_EVERY_MS = 2_000;

/** The fan-out jobs of this machine, the newest first. */
export function JobsPage() {
  const [told, setTold] = useState<Told<JobList> | null>(null);
  useLooks(
    async (signal) => {
      const found = await listJobs(signal);
      if (!signal.aborted) setTold(found);
    },
    LOOK_EVERY_MS,
    [],
  );
  return (
    <>
      <h1>Jobs</h1>
      {told === null && <p class="notice">Looking…</p>}
      {told?.type === "refused" && <p class="notice">{told.reason}</p>}
      {told?.type === "told" && <JobTable {...told.value} />}
    </>
  );
}

function JobTable({ jobs, unreadable }: JobList) {
  return (
    <>
      {unreadable.map((reason) => (
        <p key={reason} role="alert">
          {reason}
        </p>
      ))}
      {jobs.length === 0 ? (
        <p class="notice">
          No job is here. <code>procwire fanout TABLE INSTRUCTION</code> starts one.
        </p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reachable by the keyboard
        <section class="scroll" tabIndex={0} aria-label="All jobs">
          <table>
            <thead>
              <tr>
                <th scope="col">Job</th>
                <th scope="col">Status</th>
                <th scope="col">Done</th>
                <th scope="col">Failed</th>
                <th scope="col">Rows</th>
                <th scope="col">Tokens</th>
                <th scope="col">Cost</th>
                <th scope="col">Age</th>
                <th scope="col">Model</th>
                <th scope="col">Input</th>
              </tr>
            </thead>
            <tbody>
              {jobs.map((job) => (
                <tr key={job.jobId}>
                  <td>
                    <a href={hrefOf({ page: "job", jobId: job.jobId })}>{job.jobId.slice(0, 8)}</a>
                  </td>
                  <td title={job.error ?? undefined}>{job.status.replaceAll("_", " ")}</td>
                  <td class="number">{count(job.completed + job.failed)}</td>
                  <td class="number">{count(job.failed)}</td>
                  <td class="number">{count(job.totalRows)}</td>
                  <td class="number">{count(job.usage.inputTokens + job.usage.outputTokens)}</td>
                  <td class="number">{money(job.usage.costUsd)}</td>
                  <td>{age(Date.now() - job.createdAtMs)}</td>
                  <td>{job.model}</td>
                  <td class="command">{job.inputPath}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </>
  );
}
