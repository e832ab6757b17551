import { useState } from "preact/hooks";
import type { JobList } from "../../protocol/console-job-schemas.ts";
import { age, count, money } from "../app/format.ts";
import { hrefOf } from "../app/route.ts";
import { useLooks } from "../app/use-polling.ts";
import { ScrolledTable } from "../components/scrollable-table.tsx";
import { listJobs, type Told } from "./jobs-api.ts";

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
        <ScrolledTable
          label="All jobs"
          titles={["Job", "Status", "Done", "Failed", "Rows", "Tokens", "Cost", "Age", "Model", "Input"]}
        >
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
        </ScrolledTable>
      )}
    </>
  );
}
