import { useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";
import type { RowDetails } from "../../protocol/console-job-schemas.ts";
import { formatAge, formatCommand, formatCount, formatState, formatUsd } from "../app/format.ts";
import { toHref } from "../app/route.ts";
import { usePolled } from "../app/use-polling.ts";
import { ErrorView } from "../components/error-view.tsx";
import { retryRows, showRow } from "./jobs-api.ts";

const POLL_INTERVAL_MS = 2_000;

/** Page of one row: prompt, transcript, and the processes that the server still tracks. */
export function RowView({ client, jobId, itemId }: { client: ExecServerClient; jobId: string; itemId: string }) {
  const { value, problem } = usePolled(
    async (signal) => {
      const details = await showRow(jobId, itemId, signal);
      return { details, processes: await listProcesses(client, details.processPrefix) };
    },
    POLL_INTERVAL_MS,
    [client, jobId, itemId],
  );
  if (problem !== null) return <ErrorView title={`Row ${itemId}`} reason={problem} />;
  if (value === null) return <p class="notice">Loading…</p>;
  const { details, processes } = value;
  const { row } = details;
  return (
    <>
      <h1>
        Row {row.itemId} of job <a href={toHref({ page: "job", jobId })}>{jobId.slice(0, 8)}</a>
      </h1>
      <p class="state">
        {row.errorClass === null ? row.status : `failed: ${row.errorClass}`}, {row.attempts} attempts,{" "}
        {formatCount(row.usage.inputTokens)} tokens in, {formatCount(row.usage.outputTokens)} out
        {row.usage.costUsd === null ? "" : `, ${formatUsd(row.usage.costUsd)}`}
      </p>
      {row.status === "failed" && <Retry jobId={jobId} itemId={itemId} />}
      <Processes processes={processes} />
      {details.error !== null && <Text title="Error" text={details.error} />}
      {details.result !== null && <Text title="Result" text={prettyJson(details.result)} />}
      <Text title="Cells" text={details.cells} />
      <Text title="Prompt" text={details.prompt} />
      <Text title="Instructions" text={details.instructions} />
      {details.attempts.map((attempt, index) => (
        <Attempt key={index} number={index + 1} attempt={attempt} />
      ))}
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
    <>
      <h2>Processes</h2>
      <ul>
        {processes.map((process) => (
          <li key={process.handle ?? process.processId}>
            {process.handle === undefined ? (
              process.processId
            ) : (
              <a href={toHref({ page: "process", handle: process.handle })}>{process.handle}</a>
            )}{" "}
            <code>{formatCommand(process.argv)}</code> {formatState(process)}
          </li>
        ))}
      </ul>
    </>
  );
}

function Retry({ jobId, itemId }: { jobId: string; itemId: string }) {
  const [note, setNote] = useState("");
  const retry = async () => {
    try {
      const { rows, command } = await retryRows(jobId, { itemIds: [itemId] });
      const state = rows === 1 ? "pending again" : "the row has not failed";
      setNote(`${state}${command === null ? "" : `; execute it with: ${command}`}`);
    } catch (error) {
      setNote(errorMessage(error));
    }
  };
  return (
    <p>
      <button type="button" onClick={() => void retry()}>
        Retry
      </button>{" "}
      <output aria-live="polite">{note}</output>
    </p>
  );
}

function Attempt({ number, attempt }: { number: number; attempt: RowDetails["attempts"][number] }) {
  const { outcome, errorClass, message, startedAtMs, endedAtMs, usage } = attempt;
  return (
    <>
      <h2>
        Attempt {number}: {outcome}
      </h2>
      <p class="state">
        {new Date(endedAtMs).toLocaleString()}
        {startedAtMs === null ? "" : `, took ${formatAge(endedAtMs - startedAtMs)}`}, {formatCount(usage.inputTokens)}{" "}
        tokens in, {formatCount(usage.outputTokens)} out
        {usage.costUsd === null ? "" : `, ${formatUsd(usage.costUsd)}`}
        {message === null ? "" : ` · ${errorClass === null ? "" : `${errorClass}: `}${message}`}
      </p>
      <dl class="transcript">
        {attempt.transcript.map((entry, index) => (
          <div key={index}>
            <dt>
              {entry.tool === undefined
                ? entry.type.replace("_", " ")
                : `${entry.tool} ${entry.type === "called" ? "called" : entry.ok === false ? "rejected" : "returned"}`}
            </dt>
            <dd>
              <pre>{entry.text}</pre>
            </dd>
          </div>
        ))}
      </dl>
    </>
  );
}

function Text({ title, text }: { title: string; text: string }) {
  return (
    <>
      <h2>{title}</h2>
      <pre>{text}</pre>
    </>
  );
}

function prettyJson(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
