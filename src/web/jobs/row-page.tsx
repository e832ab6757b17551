import { useState } from "preact/hooks";
import type { ExecServerClient } from "../../client/browser.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";
import type { RowDetails } from "../../protocol/console-job-schemas.ts";
import { commandLine, formatAge, formatCount, formatState, formatUsd } from "../app/format.ts";
import { hrefOf } from "../app/route.ts";
import { usePolling } from "../app/use-polling.ts";
import { ErrorView } from "../components/error-view.tsx";
import { type ApiResult, retryRows, showRow } from "./jobs-api.ts";

const LOOK_EVERY_MS = 2_000;

interface RowData {
  result: ApiResult<RowDetails>;
  processes: readonly ProcessListing[];
}

/** Page of one row: prompt, transcript, and the processes that the server still tracks. */
export function RowView({
  client,
  jobId,
  itemId,
}: {
  client: ExecServerClient;
  jobId: string;
  itemId: string;
}) {
  const [look, setLook] = useState<RowData | null>(null);
  usePolling(
    async (signal) => {
      const result = await showRow(jobId, itemId, signal);
      const processes = result.type === "found" ? await processesOf(client, result.value.processPrefix) : [];
      if (!signal.aborted) setLook({ result, processes });
    },
    LOOK_EVERY_MS,
    [client, jobId, itemId],
  );
  if (!look) return <p class="notice">Looking…</p>;
  const { result, processes } = look;
  if (result.type === "refused") return <ErrorView title={`Row ${itemId}`} reason={result.reason} />;
  const details = result.value;
  const { row } = details;
  return (
    <>
      <h1>
        Row {row.itemId} of job <a href={hrefOf({ page: "job", jobId })}>{jobId.slice(0, 8)}</a>
      </h1>
      <p class="state">
        {row.errorClass === null ? row.status : `failed: ${row.errorClass}`}, {row.attempts} attempts,{" "}
        {formatCount(row.usage.inputTokens)} tokens in, {formatCount(row.usage.outputTokens)} out
        {row.usage.costUsd === null ? "" : `, ${formatUsd(row.usage.costUsd)}`}
      </p>
      {row.status === "failed" && <Retry jobId={jobId} itemId={itemId} />}
      <Terminals processes={processes} />
      {details.error !== null && <Text title="Error" text={details.error} />}
      {details.result !== null && <Text title="Result" text={pretty(details.result)} />}
      <Text title="Cells" text={details.cells} />
      <Text title="Prompt" text={details.prompt} />
      <Text title="Instructions" text={details.instructions} />
      {details.attempts.map((attempt, index) => (
        <Attempt key={index} number={index + 1} attempt={attempt} />
      ))}
    </>
  );
}

/** The processes whose ids have this prefix, running ones first; none if the list cannot be read. */
async function processesOf(client: ExecServerClient, prefix: string): Promise<readonly ProcessListing[]> {
  const all = await client.list({ allSessions: true }).catch(() => []);
  const own = all.filter(({ processId }) => processId.startsWith(prefix));
  return own.sort((a, b) => Number(b.running) - Number(a.running) || b.startedAtMs - a.startedAtMs);
}

function Terminals({ processes }: { processes: readonly ProcessListing[] }) {
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
              <a href={hrefOf({ page: "process", handle: process.handle })}>{process.handle}</a>
            )}{" "}
            <code>{commandLine(process.argv)}</code> {formatState(process)}
          </li>
        ))}
      </ul>
    </>
  );
}

function Retry({ jobId, itemId }: { jobId: string; itemId: string }) {
  const [note, setNote] = useState("");
  const retry = async () => {
    const told = await retryRows(jobId, { itemIds: [itemId] });
    if (told.type === "refused") return setNote(told.reason);
    const { rows, command } = told.value;
    setNote(
      `${rows === 1 ? "pending again" : "it has not failed"}${command === null ? "" : `; ask it with: ${command}`}`,
    );
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
        {startedAtMs === null ? "" : `, took ${formatAge(endedAtMs - startedAtMs)}`},{" "}
        {formatCount(usage.inputTokens)} tokens in, {formatCount(usage.outputTokens)} out
        {usage.costUsd === null ? "" : `, ${formatUsd(usage.costUsd)}`}
        {message === null ? "" : ` · ${errorClass === null ? "" : `${errorClass}: `}${message}`}
      </p>
      <dl class="transcript">
        {attempt.transcript.map((entry, index) => (
          <div key={index}>
            <dt>
              {entry.tool === undefined
                ? entry.type.replace("_", " ")
                : `${entry.tool} ${entry.type === "called" ? "called" : entry.ok === false ? "refused" : "returned"}`}
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

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
