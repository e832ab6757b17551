import { useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import type { JobListing } from "../../protocol/console/console-job-schemas.ts";
import { formatCount, formatQuantity, formatUsd } from "../app/format.ts";
import { toHref } from "../app/route.ts";
import { ConfirmDialog } from "../components/confirm-dialog.tsx";
import { retryRows } from "./jobs-api.ts";
import { startRetry } from "./start-retry.ts";

/** Result of a retry. */
export type RetryOutcome =
  | { type: "retried"; rows: number; handle: string | null; command: string | null }
  | { type: "failed"; reason: string };

/** Retries failed rows after a confirmation with the expected cost, and starts the process that runs them. */
export function RetryButton({
  client,
  job,
  request,
  rows,
  label,
  subject,
  isPrimary = false,
  disabledReason,
  onOutcome,
}: {
  client: ExecServerClient;
  job: JobListing;
  request: { errorClasses?: readonly string[]; itemIds?: readonly string[] };
  /** Number of rows that the request retries. */
  rows: number;
  label: string;
  /** The rows, for screen readers, if the label does not name them. */
  subject?: string;
  isPrimary?: boolean;
  disabledReason: string | null;
  /** Called after the retry. The caller shows the outcome, because a retried row has no button. */
  onOutcome: (outcome: RetryOutcome) => void;
}) {
  const [isAsking, setAsking] = useState(false);
  const retry = async () => {
    try {
      const { rows: retried, run, command } = await retryRows(job.jobId, request);
      const handle = run === null ? null : await startRetry(client, run);
      onOutcome({ type: "retried", rows: retried, handle, command });
    } catch (error) {
      onOutcome({ type: "failed", reason: userMessage(error) });
    }
  };
  return (
    <>
      <button
        type="button"
        class={isPrimary ? "primary" : undefined}
        disabled={disabledReason !== null}
        title={disabledReason ?? undefined}
        onClick={() => setAsking(true)}
      >
        {label}
        {subject !== undefined && <span class="hidden"> {subject}</span>}
      </button>
      {isAsking && (
        <ConfirmDialog
          title={`Retry ${formatQuantity(rows, "row")}?`}
          actions={[{ label: "Retry", tone: "primary", onSelect: () => void retry() }]}
          onClose={() => setAsking(false)}
        >
          <p>{estimateCost(job, rows)}</p>
          <p class="muted">
            The rows become pending again. Unless a process already works on the job, the server starts{" "}
            <code>procwire jobs retry</code>.
          </p>
        </ConfirmDialog>
      )}
    </>
  );
}

/** The outcome of a retry as text, with a link to the process that runs the rows. */
export function RetryNote({ outcome }: { outcome: RetryOutcome }) {
  if (outcome.type === "failed") return <span class="alert">{outcome.reason}</span>;
  const { rows, handle, command } = outcome;
  return (
    <>
      {formatQuantity(rows, "row")} pending again
      {handle !== null ? (
        <>
          ; they run in process <a href={toHref({ page: "process", handle })}>{handle}</a>
        </>
      ) : (
        command !== null && (
          <>
            ; run them with <code>{command}</code>
          </>
        )
      )}
    </>
  );
}

/** Returns the expected cost of retrying rows, from the average of the finished rows of the job. */
export function estimateCost({ usage, completed, failed, model }: JobListing, rows: number): string {
  const finished = completed + failed;
  const tokens = Math.round(((usage.inputTokens + usage.outputTokens) / Math.max(1, finished)) * rows);
  if (finished === 0 || tokens === 0) return "The cost is unknown: no row of the job has used tokens yet.";
  const text = `about ${formatCount(tokens)} tokens of ${model}`;
  if (usage.costUsd === null) return `Expected usage: ${text}. The price of ${model} is unknown.`;
  const perRow = usage.costUsd / finished;
  return `Expected cost: about ${formatUsd(perRow * rows)} (${text}), at the average of ${formatUsd(perRow)} per row.`;
}
