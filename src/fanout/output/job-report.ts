import { type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
import { costInUsd, formatUsdExact, type Price } from "../cost/price-table.ts";
import type { JobCounts, JobRecord } from "../job.ts";
import type { BatchGroup } from "../ledger/batch-ledger.ts";
import { countText, durationText } from "./job-progress.ts";
import type { JobSummary } from "./job-summary.ts";

/** Formats all jobs, one line each. */
export function jobTable(
  jobs: readonly { job: JobRecord; counts: JobCounts; price: Price | null }[],
  nowMs: number,
): string {
  const rows = [
    ["JOB", "STATUS", "DONE", "FAILED", "ROWS", "TOKENS", "COST", "AGE", "INPUT"],
    ...jobs.map(({ job, counts, price }) => [
      job.id.slice(0, 8),
      job.status,
      `${counts.completed + counts.failed}`,
      `${counts.failed}`,
      `${job.totalRows}`,
      countText(totalTokens(counts.usage)),
      price ? formatUsdExact(costInUsd(price, counts.usage)) : "?",
      durationText(Math.max(0, Math.round((nowMs - job.createdAtMs) / 1000))),
      job.inputPath,
    ]),
  ];
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Formats one job for users. */
export function jobReport(summary: JobSummary): string {
  const { job, counts, failures, failuresByClass, usageByClass, price } = summary;
  const { task } = job;
  const usageOfClass = new Map(usageByClass);
  const unsampled = job.totalRows - counts.total;
  const lines = [
    `job       ${job.id}`,
    `status    ${job.status}${job.error === null ? "" : ` (${job.error})`}`,
    `rows      ${counts.completed} completed, ${counts.failed} failed, ${counts.running} running, ${counts.pending} pending${unsampled > 0 ? `, ${unsampled} unsampled` : ""} of ${job.totalRows}`,
    `tokens    ${counts.usage.inputTokens} in (${counts.usage.cachedInputTokens} cached), ${counts.usage.outputTokens} out`,
    `cost      ${price ? formatUsdExact(costInUsd(price, counts.usage)) : `unknown; set the price of ${task.model} with --prices FILE`}`,
    `model     ${task.model}${task.reasoningEffort === null ? "" : ` (${task.reasoningEffort})`}, tools ${task.tools}`,
    `task      ${task.instruction}`,
    `input     ${job.inputPath}`,
    `output    ${job.outputPath}`,
    `created   ${new Date(job.createdAtMs).toISOString()}`,
  ];
  const [first, ...others] = summary.batches.map(batchText);
  if (first !== undefined) lines.push(`batches   ${first}`, ...others.map((text) => `          ${text}`));
  if (failuresByClass.length > 0) {
    lines.push(
      `failures  ${failuresByClass.map(([errorClass, count]) => `${count} ${errorClass}${costText(price, usageOfClass.get(errorClass))}`).join(", ")}`,
    );
    for (const item of failures) lines.push(`          ${item.itemId}: ${item.error}`);
  }
  return lines.join("\n");
}

function batchText(group: BatchGroup): string {
  const name = group.batchId ?? `not submitted yet (${group.id.slice(0, 8)})`;
  const state = group.state === "created" ? `${group.answered} answered` : group.state;
  return `${name}: ${group.rows} rows, ${state}${group.error === null ? "" : `; ${group.error}`}`;
}

/** Formats ` ($0.12)`, or nothing if the price is unknown. */
function costText(price: Price | null, usage: TokenUsage | undefined): string {
  return price && usage ? ` (${formatUsdExact(costInUsd(price, usage))})` : "";
}
