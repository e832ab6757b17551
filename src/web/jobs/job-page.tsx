import { useMemo, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import type { JobDetails, ResultsFormat } from "../../protocol/console/console-job-schemas.ts";
import { formatAge, formatCompact, formatCount, formatRate, formatUsd } from "../app/format.ts";
import { describeJob, FAILURE_NAMES } from "../app/job-state.ts";
import { toHref } from "../app/route.ts";
import { saveFile } from "../app/save-file.ts";
import { usePageTitle } from "../app/use-page-title.ts";
import { usePolled } from "../app/use-polling.ts";
import { Alert } from "../components/alert.tsx";
import { Badge } from "../components/badge.tsx";
import { Breadcrumb } from "../components/breadcrumb.tsx";
import { ErrorView } from "../components/error-view.tsx";
import { LineChart } from "../components/line-chart.tsx";
import { Menu } from "../components/menu.tsx";
import { StackedBar } from "../components/stacked-bar.tsx";
import { ColumnTitle } from "../components/table-header.tsx";
import { downloadResults, showJob } from "./jobs-api.ts";
import { toRateCurve } from "./rate-curve.ts";
import { RetryButton, RetryNote, type RetryOutcome } from "./retry-button.tsx";
import { RowDrawer } from "./row-drawer.tsx";
import { RowsTable } from "./rows-table.tsx";

const POLL_INTERVAL_MS = 1_000;

/** Page of one job: progress, cost, failures and rows. The row `itemId` is open in a drawer. */
export function JobPage({ client, jobId, itemId }: { client: ExecServerClient; jobId: string; itemId: string | null }) {
  const { value: details, problem } = usePolled((signal) => showJob(jobId, signal), POLL_INTERVAL_MS, [jobId]);
  const [outcome, setOutcome] = useState<RetryOutcome | null>(null);
  const shortId = jobId.slice(0, 8);
  usePageTitle(details?.job.instruction ?? `Job ${shortId}`);
  const breadcrumb = <Breadcrumb parents={[{ label: "Jobs", href: toHref({ page: "jobs" }) }]} current={shortId} />;
  if (details === null) {
    return (
      <>
        {breadcrumb}
        {problem === null ? <p class="notice">Loading…</p> : <ErrorView title={`Job ${shortId}`} reason={problem} />}
      </>
    );
  }
  const { job } = details;
  return (
    <>
      <div class="job-path">
        {breadcrumb}
        <output aria-live="polite">
          <Badge {...describeJob(job)} />
        </output>
      </div>
      <div class="page-head">
        <h1 class="job-title" title={job.instruction}>
          {job.instruction}
        </h1>
        <div class="actions">
          <DownloadMenu jobId={jobId} />
          {job.failed > 0 && (
            <RetryButton
              client={client}
              job={job}
              request={{}}
              rows={job.failed}
              label={`Retry ${formatCount(job.failed)} failed…`}
              isPrimary
              disabledReason={details.retryRefused}
              onOutcome={setOutcome}
            />
          )}
        </div>
      </div>
      <Alert message={problem} />
      <output aria-live="polite" class="retry-note">
        {outcome !== null && <RetryNote outcome={outcome} />}
      </output>
      <Progress details={details} />
      <Facts details={details} />
      <div class={details.failures.length > 0 ? "columns" : undefined}>
        <RateChart details={details} />
        <Failures client={client} details={details} onOutcome={setOutcome} />
      </div>
      <RowsTable
        jobId={jobId}
        headers={details.headers}
        classes={details.failures.map(({ errorClass }) => errorClass)}
        selected={itemId}
      />
      {itemId !== null && <RowDrawer key={itemId} client={client} job={job} itemId={itemId} onRetry={setOutcome} />}
    </>
  );
}

function Progress({ details }: { details: JobDetails }) {
  const { job, isReading } = details;
  const counted = job.pending + job.running + job.completed + job.failed;
  const done = job.completed + job.failed;
  const isInterrupted = job.status === "running" && job.isBeingRun === false;
  return (
    <section class="card progress-card" aria-label="Progress">
      <StackedBar job={job} />
      <p class="legend">
        <span>
          {formatCount(done)} of {isReading ? "more than " : ""}
          {formatCount(counted)} rows
        </span>
        <span class="completed">{formatCount(job.completed)} completed</span>
        <span class="failed">{formatCount(job.failed)} failed</span>
        <span class="running">{formatCount(job.running)} running</span>
        <span>{formatCount(job.pending)} pending</span>
        {job.totalRows > counted && <span>{formatCount(job.totalRows - counted)} outside of the sample</span>}
      </p>
      {job.error !== null && <p class="alert">{job.error}</p>}
      {isInterrupted && (
        <p class="muted">
          No process works on the job. <code>procwire jobs resume {job.jobId.slice(0, 8)}</code> resumes it.
        </p>
      )}
    </section>
  );
}

function Facts({ details }: { details: JobDetails }) {
  const { job, pace } = details;
  const { usage } = job;
  const isRunning = job.status === "running";
  const waits = describeWaits(details);
  return (
    <dl class="tiles">
      <Tile name="Cost">{usage.costUsd === null ? `unknown price` : formatUsd(usage.costUsd)}</Tile>
      <Tile name={isRunning ? "Rate" : "Average rate"} detail={isRunning ? "over the last 30 seconds" : undefined}>
        {formatRate(job.ratePerSecond) || "0 rows/s"}
      </Tile>
      {isRunning && (
        <Tile name="Time left">{job.etaSeconds === null ? "unknown" : formatAge(job.etaSeconds * 1000)}</Tile>
      )}
      <Tile
        name="Tokens"
        detail={`${formatCount(usage.inputTokens)} in, of which ${formatCount(usage.cachedInputTokens)} were cached; ${formatCount(usage.outputTokens)} out`}
      >
        {formatCompact(usage.inputTokens)} in, {formatCompact(usage.outputTokens)} out
      </Tile>
      {pace && (
        <Tile name="Concurrent calls">
          {pace.width} of {pace.maxWidth}
        </Tile>
      )}
      {waits !== "" && <Tile name="Waits for the API">{waits}</Tile>}
      <Tile name="Model">{job.model}</Tile>
      <Tile name="Input" detail={job.inputPath}>
        {job.inputPath}
      </Tile>
      <Tile name="Output" detail={details.outputPath}>
        {details.outputPath}
      </Tile>
    </dl>
  );
}

function Tile({
  name,
  detail,
  children,
}: {
  name: string;
  detail?: string | undefined;
  children: preact.ComponentChildren;
}) {
  return (
    <div class="card tile">
      <dt>{name}</dt>
      <dd class="clipped" title={detail}>
        {children}
      </dd>
    </div>
  );
}

function describeWaits({ pace, backingOff, refusedForRate }: JobDetails): string {
  const parts = [];
  if (pace && pace.heldMs > 0) parts.push(`all calls paused for ${Math.ceil(pace.heldMs / 1000)} s`);
  if (pace?.apiAwaySeconds) parts.push(`no response for ${pace.apiAwaySeconds} s`);
  if (backingOff > 0) parts.push(`${formatCount(backingOff)} rows wait for their next attempt`);
  if (refusedForRate > 0) parts.push(`${formatCount(refusedForRate)} attempts rejected with 429`);
  return parts.join(", ");
}

function RateChart({ details }: { details: JobDetails }) {
  const { settled, spanMs } = details;
  const last = settled.at(-1);
  // A poll without a newly finished row keeps the curve.
  const points = useMemo(
    () => toRateCurve(details),
    [settled.length, spanMs, details.job.status, last?.atMs, (last?.completed ?? 0) + (last?.failed ?? 0)],
  );
  return (
    <LineChart
      label="Finished rows per second"
      points={points}
      kind="number"
      format={(value) => `${Math.round(value * 10) / 10}`}
    />
  );
}

function Failures({
  client,
  details,
  onOutcome,
}: {
  client: ExecServerClient;
  details: JobDetails;
  onOutcome: (outcome: RetryOutcome) => void;
}) {
  const { job, failures, retryRefused } = details;
  const hasCost = failures.some(({ usage }) => usage.costUsd !== null);
  if (failures.length === 0) return null;
  return (
    <section class="card failures" aria-label="Failures">
      <h2>Failures</h2>
      <table>
        <thead>
          <tr>
            <ColumnTitle>Reason</ColumnTitle>
            <ColumnTitle class="number">Rows</ColumnTitle>
            {hasCost && <ColumnTitle class="number">Cost</ColumnTitle>}
            <ColumnTitle>
              <span class="hidden">Retry</span>
            </ColumnTitle>
          </tr>
        </thead>
        <tbody>
          {failures.map(({ errorClass, rows, usage }) => (
            <tr key={errorClass}>
              <td title={errorClass}>{FAILURE_NAMES[errorClass]}</td>
              <td class="number">{formatCount(rows)}</td>
              {hasCost && <td class="number">{formatUsd(usage.costUsd)}</td>}
              <td class="number">
                <RetryButton
                  client={client}
                  job={job}
                  request={{ errorClasses: [errorClass] }}
                  rows={rows}
                  label="Retry…"
                  subject={FAILURE_NAMES[errorClass]}
                  disabledReason={retryRefused}
                  onOutcome={onOutcome}
                />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function DownloadMenu({ jobId }: { jobId: string }) {
  const [note, setNote] = useState("");
  const download = async (format: ResultsFormat) => {
    try {
      const results = await downloadResults(jobId, format, (rows, total) =>
        setNote(`${formatCount(rows)} of ${formatCount(total)} rows`),
      );
      saveFile(`${jobId.slice(0, 8)}.${format}`, results);
      setNote("");
    } catch (error) {
      setNote(userMessage(error));
    }
  };
  return (
    <>
      <output aria-live="polite" class="muted">
        {note}
      </output>
      <Menu
        label="Download results"
        isFramed
        items={[
          { label: "Results as CSV", onSelect: () => void download("csv") },
          { label: "Results as JSON lines", onSelect: () => void download("jsonl") },
        ]}
      >
        Download results ▾
      </Menu>
    </>
  );
}
