import type { JobList, JobListing } from "../../protocol/console/console-job-schemas.ts";
import { followRow } from "../app/follow-row.ts";
import { formatAge, formatCount, formatRate, formatUsd } from "../app/format.ts";
import { describeJob } from "../app/job-state.ts";
import { toHref } from "../app/route.ts";
import { usePageTitle } from "../app/use-page-title.ts";
import { usePolled } from "../app/use-polling.ts";
import { Alert } from "../components/alert.tsx";
import { Badge } from "../components/badge.tsx";
import { StackedBar } from "../components/stacked-bar.tsx";
import { ColumnTitle } from "../components/table-header.tsx";
import { listJobs } from "./jobs-api.ts";

const POLL_INTERVAL_MS = 2_000;

/** The fan-out jobs of this host or its database, newest first. */
export function JobsPage() {
  usePageTitle("Jobs");
  const { value: list, problem } = usePolled(listJobs, POLL_INTERVAL_MS, []);
  return (
    <>
      <div class="page-head">
        <h1>Jobs</h1>
        {list !== null && list.jobs.length > 0 && (
          <span class="muted">{list.jobs.filter(({ status }) => status === "running").length} running</span>
        )}
      </div>
      {problem !== null ? (
        <p class="card notice">{problem}</p>
      ) : list === null ? (
        <p class="notice">Loading…</p>
      ) : (
        <JobTable {...list} />
      )}
    </>
  );
}

function JobTable({ jobs, unreadable }: JobList) {
  const hasEta = jobs.some(({ etaSeconds }) => etaSeconds !== null);
  const hasCost = jobs.some(({ usage }) => usage.costUsd !== null);
  return (
    <>
      {unreadable.map((reason) => (
        <Alert key={reason} message={reason} />
      ))}
      {jobs.length === 0 ? (
        <p class="card notice">
          No jobs. <code>procwire fanout TABLE --instruction TEXT</code> starts one.
        </p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be reachable by keyboard
        <section class="card scroll" tabIndex={0} aria-label="All jobs">
          <table class="jobs cards">
            <thead>
              <tr>
                <ColumnTitle>Instruction</ColumnTitle>
                <ColumnTitle class="column-status">Status</ColumnTitle>
                <ColumnTitle class="column-progress">Progress</ColumnTitle>
                {hasCost && <ColumnTitle class="number column-cost">Cost</ColumnTitle>}
                <ColumnTitle class="number column-rate">Rate</ColumnTitle>
                {hasEta && <ColumnTitle class="number column-eta">Time left</ColumnTitle>}
                <ColumnTitle class="number column-age">Age</ColumnTitle>
              </tr>
            </thead>
            <tbody>
              {jobs.map((job) => (
                <JobRow key={job.jobId} job={job} hasCost={hasCost} hasEta={hasEta} />
              ))}
            </tbody>
          </table>
        </section>
      )}
    </>
  );
}

function JobRow({ job, hasCost, hasEta }: { job: JobListing; hasCost: boolean; hasEta: boolean }) {
  const href = toHref({ page: "job", jobId: job.jobId });
  const done = job.completed + job.failed;
  const rows = done + job.running + job.pending;
  return (
    <tr class="clickable" onClick={(event) => followRow(event, href)}>
      <td class="instruction">
        <a href={href} class="clipped" title={job.instruction}>
          {job.instruction}
        </a>
        <div class="muted clipped">
          {job.jobId.slice(0, 8)} · {job.model} · {job.inputPath}
        </div>
      </td>
      <td class="status">
        <Badge {...describeJob(job)} />
      </td>
      <td class="progress">
        <StackedBar job={job} />
        <div class="muted">
          {formatCount(done)} of {formatCount(rows)} rows{job.failed > 0 && ", "}
          {job.failed > 0 && <span class="failed-count">{formatCount(job.failed)} failed</span>}
        </div>
      </td>
      {hasCost && <td class="number cost">{formatUsd(job.usage.costUsd)}</td>}
      <td class="number rate">{formatRate(job.ratePerSecond)}</td>
      {hasEta && <td class="number eta">{job.etaSeconds === null ? "" : formatAge(job.etaSeconds * 1000)}</td>}
      <td class="number age">{formatAge(Date.now() - job.createdAtMs)}</td>
    </tr>
  );
}
