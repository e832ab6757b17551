import type { JobList } from "../../protocol/console-job-schemas.ts";
import { formatAge, formatCount, formatUsd } from "../app/format.ts";
import { toHref } from "../app/route.ts";
import { usePolled } from "../app/use-polling.ts";
import { ScrollableTable } from "../components/scrollable-table.tsx";
import { listJobs } from "./jobs-api.ts";

const POLL_INTERVAL_MS = 2_000;

/** The fan-out jobs of this host or its database, newest first. */
export function JobsPage() {
  const { value: list, problem } = usePolled(listJobs, POLL_INTERVAL_MS, []);
  return (
    <>
      <h1>Jobs</h1>
      {problem !== null ? (
        <p class="notice">{problem}</p>
      ) : list === null ? (
        <p class="notice">Loading…</p>
      ) : (
        <JobTable {...list} />
      )}
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
          No jobs. <code>procwire fanout TABLE --instruction TEXT</code> starts one.
        </p>
      ) : (
        <ScrollableTable
          label="All jobs"
          titles={["Job", "Status", "Done", "Failed", "Rows", "Tokens", "Cost", "Age", "Model", "Input"]}
        >
          {jobs.map((job) => (
            <tr key={job.jobId}>
              <td>
                <a href={toHref({ page: "job", jobId: job.jobId })}>{job.jobId.slice(0, 8)}</a>
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
