import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { ExecServerClient } from "../../client/browser.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";
import type { JobListing, RowDetails } from "../../protocol/console/console-job-schemas.ts";
import { formatCommand, formatCount, formatDuration, formatUsd } from "../app/format.ts";
import { describeRow, FAILURE_NAMES } from "../app/job-state.ts";
import { toHref } from "../app/route.ts";
import { describeProcess } from "../app/state-badge.ts";
import { usePolled } from "../app/use-polling.ts";
import { Alert } from "../components/alert.tsx";
import { Badge } from "../components/badge.tsx";
import { Drawer } from "../components/drawer.tsx";
import { showRow } from "./jobs-api.ts";
import { RetryButton, RetryNote, type RetryOutcome } from "./retry-button.tsx";
import { Transcript } from "./transcript.tsx";

const POLL_INTERVAL_MS = 2_000;

/** One row of a job: cells, result, attempts with their transcripts, and the processes that the server still tracks. */
export function RowDrawer({
  client,
  job,
  itemId,
  onRetry,
}: {
  client: ExecServerClient;
  job: JobListing;
  itemId: string;
  onRetry: (outcome: RetryOutcome) => void;
}) {
  const [outcome, setOutcome] = useState<RetryOutcome | null>(null);
  const { jobId } = job;
  const { value, problem } = usePolled(
    async (signal) => {
      const details = await showRow(jobId, itemId, signal);
      return { details, processes: await listProcesses(client, details.processPrefix) };
    },
    POLL_INTERVAL_MS,
    [client, jobId, itemId],
  );
  const row = value?.details.row;
  return (
    <Drawer
      title={`Row ${itemId}`}
      actions={
        row && (
          <>
            <Badge {...describeRow(row)} />
            {row.status === "failed" && (
              <RetryButton
                client={client}
                job={job}
                request={{ itemIds: [itemId] }}
                rows={1}
                label="Retry row…"
                disabledReason={null}
                onOutcome={(retried) => {
                  setOutcome(retried);
                  onRetry(retried);
                }}
              />
            )}
          </>
        )
      }
      onClose={() => {
        location.hash = toHref({ page: "job", jobId });
      }}
    >
      {outcome !== null && (
        <p>
          <RetryNote outcome={outcome} />
        </p>
      )}
      <Alert message={problem} />
      {value === null ? problem === null && <p class="notice">Loading…</p> : <Content {...value} />}
    </Drawer>
  );
}

function Content({ details, processes }: { details: RowDetails; processes: readonly ProcessListing[] }) {
  const { row } = details;
  return (
    <>
      <dl class="facts">
        <dt>Attempts</dt>
        <dd>{row.attempts}</dd>
        <dt>Duration</dt>
        <dd>{row.tookMs === null ? "not finished" : formatDuration(row.tookMs)}</dd>
        <dt>Usage</dt>
        <dd>{formatUsage(row.usage)}</dd>
      </dl>
      <Processes processes={processes} />
      {details.error !== null && (
        <Section title="Error">
          <pre class="error">{details.error}</pre>
        </Section>
      )}
      {details.result !== null && (
        <Section title="Result">
          <pre>{prettyJson(details.result)}</pre>
        </Section>
      )}
      <Section title="Cells">
        <pre>{prettyJson(details.cells)}</pre>
      </Section>
      {details.attempts.map((attempt, index) => (
        <Attempt key={index} number={index + 1} attempt={attempt} />
      ))}
      <details>
        <summary>Prompt and instructions</summary>
        <Section title="Prompt">
          <pre>{details.prompt}</pre>
        </Section>
        <Section title="Instructions">
          <pre>{details.instructions}</pre>
        </Section>
      </details>
    </>
  );
}

/** Returns the processes whose ids have this prefix, running ones first; none if the list cannot be read. */
async function listProcesses(client: ExecServerClient, prefix: string): Promise<readonly ProcessListing[]> {
  const all = await client.list({ allSessions: true }).catch(() => []);
  const own = all.filter(({ processId }) => processId.startsWith(prefix));
  return own.sort((a, b) => Number(b.running) - Number(a.running) || b.startedAtMs - a.startedAtMs);
}

function Processes({ processes }: { processes: readonly ProcessListing[] }) {
  if (processes.length === 0) return null;
  return (
    <Section title="Processes">
      <ul class="row-processes">
        {processes.map((process) => (
          <li key={process.handle ?? process.processId}>
            <Badge {...describeProcess(process)} />
            {process.handle === undefined ? (
              process.processId
            ) : (
              <a href={toHref({ page: "process", handle: process.handle })}>{process.handle}</a>
            )}
            <code class="clipped">{formatCommand(process.argv)}</code>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function Attempt({ number, attempt }: { number: number; attempt: RowDetails["attempts"][number] }) {
  const { outcome, errorClass, message, startedAtMs, endedAtMs, usage } = attempt;
  return (
    <section class="attempt">
      <h3>
        Attempt {number}
        <span class="muted">
          {outcome}
          {startedAtMs === null ? "" : ` · ${formatDuration(endedAtMs - startedAtMs)}`} · {formatUsage(usage)} ·{" "}
          <time dateTime={new Date(endedAtMs).toISOString()}>{new Date(endedAtMs).toLocaleString()}</time>
        </span>
      </h3>
      {message !== null && (
        <p class="alert">
          {errorClass === null ? "" : `${FAILURE_NAMES[errorClass]}: `}
          {message}
        </p>
      )}
      <Transcript entries={attempt.transcript} />
    </section>
  );
}

function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function formatUsage({ inputTokens, outputTokens, costUsd }: RowDetails["row"]["usage"]): string {
  const tokens = `${formatCount(inputTokens)} tokens in, ${formatCount(outputTokens)} out`;
  return costUsd === null ? tokens : `${formatUsd(costUsd)}, ${tokens}`;
}

export function prettyJson(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
