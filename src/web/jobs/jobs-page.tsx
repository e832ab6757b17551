import { useState } from "preact/hooks";
import type { JobList } from "../../protocol/console-job-schemas.ts";
import { formatAge, formatCount, formatUsd } from "../app/format.ts";
import { hrefOf } from "../app/route.ts";
import { usePolling } from "../app/use-polling.ts";
import { ScrollableTable } from "../components/scrollable-table.tsx";
import { type ApiResult, listJobs } from "./jobs-api.ts";

const LOOK_EVERY_MS = 2_000;

/** The fan-out jobs of this machine, the newest first. */
export function JobsPage() {
  const [told, setTold] = useState<ApiResult<JobList> | null>(null);
  usePolling(
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
      {told?.type === "found" && <JobTable {...told.value} />}
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
        <ScrollableTable
          label="All jobs"
          titles={["Job", "Status", "Done", "Failed", "Rows", "Tokens", "Cost", "Age", "Model", "Input"]}
        >
          {jobs.map((job) => (
            <tr key={job.jobId}>
              <td>
                <a href={hrefOf({ page: "job", jobId: job.jobId })}>{job.jobId.slice(0, 8)}</a>
              </td>
              <td title={job.error ?? undefined}>{job.status.replaceAll("_", " ")}</td>
              <td class="number">{formatCount(job.completed + job.failed)}</td>
              <td class="number">{formatCount(job.failed)}</td>
              <td class="number">{formatCount(job.totalRows)}</td>
              <td class="number">{formatCount(job.usage.inputTokens + job.usage.outputTokens)}</td>
              <td class="number">{formatUsd(job.usage.costUsd)}</td>
              <td>{formatAge(Date.now() - job.createdAtMs)}</td>
              <td>{job.model}</td>
              <td class="command">{job.inputPath}</td>
            </tr>
          ))}
        </ScrollableTable>
      )}
    </>
  );
}
