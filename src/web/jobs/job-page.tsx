import { useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { JobDetails } from "../../protocol/console-job-schemas.ts";
import { formatAge, formatCount, formatUsd } from "../app/format.ts";
import { usePolled } from "../app/use-polling.ts";
import { ErrorView } from "../components/error-view.tsx";
import { LineChart } from "../components/line-chart.tsx";
import { TableHeader } from "../components/table-header.tsx";
import { retryRows, showJob } from "./jobs-api.ts";
import { RowsTable } from "./rows-table.tsx";

const POLL_INTERVAL_MS = 1_000;

/** Page of one job: progress, cost, failures and rows. */
export function JobPage({ jobId }: { jobId: string }) {
  const { value: details, problem } = usePolled((signal) => showJob(jobId, signal), POLL_INTERVAL_MS, [jobId]);
  if (problem !== null) return <ErrorView title={`Job ${jobId.slice(0, 8)}`} reason={problem} />;
  if (details === null) return <p class="notice">Loading…</p>;
  const { job } = details;
  return (
    <>
      <h1>Job {job.jobId.slice(0, 8)}</h1>
      <Progress details={details} />
      <div class="columns">
        <Facts details={details} />
        <LineChart label="rows a second" points={rateCurve(details)} />
      </div>
      <Failures details={details} />
      <h2>Rows</h2>
      <RowsTable jobId={jobId} classes={details.failures.map(({ errorClass }) => errorClass)} />
    </>
  );
}

function Progress({ details }: { details: JobDetails }) {
  const { job, isBeingRun, isReading } = details;
  const counted = job.pending + job.running + job.completed + job.failed;
  const done = job.completed + job.failed;
  const isAbandoned = job.status === "running" && isBeingRun === false;
  return (
    <>
      <p class="state">
        <output aria-live="polite">
          {job.status.replaceAll("_", " ")}
          {isAbandoned ? ", but no process works on it" : ""}
        </output>
        {job.error === null ? "" : ` · ${job.error}`}
        {isAbandoned && (
          <>
            {" · "}
            <code>procwire jobs resume {job.jobId.slice(0, 8)}</code> resumes it
          </>
        )}
      </p>
      <progress max={Math.max(1, counted)} value={done} aria-label="Rows done" />
      <p>
        {formatCount(done)} of {isReading ? "more than " : ""}
        {formatCount(counted)} rows, {formatCount(job.failed)} failed, {formatCount(job.running)} running,{" "}
        {formatCount(job.pending)} pending
        {job.totalRows > counted ? `, ${formatCount(job.totalRows - counted)} outside of the sample` : ""}
      </p>
    </>
  );
}

function Facts({ details }: { details: JobDetails }) {
  const { job, pace } = details;
  const { usage } = job;
  return (
    <dl>
      <dt>Throughput</dt>
      <dd>{throughput(details)}</dd>
      {job.status === "running" && (
        <>
          <dt>Time left</dt>
          <dd>{details.etaSeconds === null ? "unknown" : formatAge(details.etaSeconds * 1000)}</dd>
        </>
      )}
      <dt>Tokens</dt>
      <dd>
        {formatCount(usage.inputTokens)} in ({formatCount(usage.cachedInputTokens)} cached),{" "}
        {formatCount(usage.outputTokens)} out
      </dd>
      <dt>Cost</dt>
      <dd>{usage.costUsd === null ? `unknown price of ${job.model}` : formatUsd(usage.costUsd)}</dd>
      <dt>Waits for the API</dt>
      <dd>{waits(details)}</dd>
      {pace && (
        <>
          <dt>Concurrent calls</dt>
          <dd>
            {pace.width} of {pace.maxWidth}
          </dd>
        </>
      )}
      <dt>Model</dt>
      <dd>{job.model}</dd>
      <dt>Task</dt>
      <dd class="clipped" title={details.instruction}>
        {details.instruction}
      </dd>
      <dt>Input</dt>
      <dd>{job.inputPath}</dd>
      <dt>Output</dt>
      <dd>{details.outputPath}</dd>
    </dl>
  );
}

function throughput({ job, ratePerSecond, settled, spanMs }: JobDetails): string {
  if (job.status === "running") {
    return ratePerSecond > 0 ? `${ratePerSecond.toFixed(1)} rows/s` : "no row in the last 30 s";
  }
  const [first] = settled;
  const last = settled.at(-1);
  if (!first || !last) return "no row yet";
  const rows = settled.reduce((sum, { completed, failed }) => sum + completed + failed, 0);
  return `${((rows * 1000) / (last.atMs + spanMs - first.atMs)).toFixed(1)} rows/s on average`;
}

function waits({ pace, backingOff, refusedForRate }: JobDetails): string {
  const parts = [];
  if (pace && pace.heldMs > 0) parts.push(`all calls paused for ${Math.ceil(pace.heldMs / 1000)} s`);
  if (pace?.apiAwaySeconds) parts.push(`no response for ${pace.apiAwaySeconds} s`);
  if (backingOff > 0) parts.push(`${formatCount(backingOff)} rows wait for their next attempt`);
  if (refusedForRate > 0) parts.push(`${formatCount(refusedForRate)} attempts rejected with 429`);
  return parts.length === 0 ? "none" : parts.join(", ");
}

function Failures({ details }: { details: JobDetails }) {
  const { job, failures, retryRefused } = details;
  const [note, setNote] = useState<string | null>(null);
  const retry = async (classes: readonly string[] | null) => {
    try {
      const { rows, command } = await retryRows(job.jobId, classes ? { errorClasses: classes } : {});
      setNote(`${rows} rows are pending again${command === null ? "" : `; execute them with: ${command}`}`);
    } catch (error) {
      setNote(errorMessage(error));
    }
  };
  if (failures.length === 0 && note === null) return null;
  return (
    <>
      <h2>Failures</h2>
      <output aria-live="polite">{note ?? ""}</output>
      {failures.length > 0 && (
        <table class="narrow">
          <TableHeader titles={["Class", "Rows", "Cost", "Retry"]} />
          <tbody>
            {failures.map(({ errorClass, rows, usage }) => (
              <tr key={errorClass}>
                <td>{errorClass}</td>
                <td class="number">{formatCount(rows)}</td>
                <td class="number">{formatUsd(usage.costUsd)}</td>
                <td>
                  <button
                    type="button"
                    disabled={retryRefused !== null}
                    title={retryRefused ?? undefined}
                    aria-label={`retry ${errorClass}`}
                    onClick={() => void retry([errorClass])}
                  >
                    Retry
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {failures.length > 1 && (
        <p>
          <button
            type="button"
            disabled={retryRefused !== null}
            title={retryRefused ?? undefined}
            onClick={() => void retry(null)}
          >
            Retry all
          </button>
        </p>
      )}
    </>
  );
}

/** Returns the rate over time, with zeros for spans without a finished row. */
function rateCurve({ settled, spanMs }: JobDetails): [number, number][] {
  const [first] = settled;
  const last = settled.at(-1);
  if (!first || !last) return [];
  const rows = new Map(settled.map(({ atMs, completed, failed }) => [atMs, completed + failed]));
  const points: [number, number][] = [];
  for (let atMs = first.atMs; atMs <= last.atMs; atMs += spanMs)
    points.push([atMs / 1000, ((rows.get(atMs) ?? 0) * 1000) / spanMs]);
  return points;
}
