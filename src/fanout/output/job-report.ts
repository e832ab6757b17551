import path from "node:path";
import { type TokenUsage, totalTokens } from "../../agent/token-usage.ts";
import { formatAge } from "../../base/text/format-age.ts";
import { printableLine } from "../../base/text/printable-text.ts";
import { costInUsd, formatUsdExact, type Price } from "../cost/price-table.ts";
import type { JobCounts, JobRecord } from "../job.ts";
import type { BatchGroup } from "../ledger/batch-ledger.ts";
import { countText } from "./job-progress.ts";
import type { JobSummary } from "./job-summary.ts";

/** Columns of the instruction if the line is already full. */
const MIN_INSTRUCTION_COLUMNS = 20;
const MAX_INPUT_COLUMNS = 20;

/** Formats all jobs, one line each. DONE counts completed rows without failures. The instruction is cut to the line. */
export function jobTable(
  jobs: readonly { job: JobRecord; counts: JobCounts; price: Price | null }[],
  nowMs: number,
  columns: number,
): string {
  const rows = [
    ["JOB", "STATUS", "DONE", "FAILED", "ROWS", "TOKENS", "COST", "AGE", "INPUT", "INSTRUCTION"],
    ...jobs.map(({ job, counts, price }) => [
      job.id.slice(0, 8),
      job.status,
      `${counts.completed}`,
      `${counts.failed}`,
      `${job.totalRows}`,
      countText(totalTokens(counts.usage)),
      price ? formatUsdExact(costInUsd(price, counts.usage)) : "?",
      formatAge(nowMs - job.createdAtMs),
      clip(path.basename(job.inputPath), MAX_INPUT_COLUMNS),
      printableLine(job.task.instruction.trim().replace(/\s+/g, " ")),
    ]),
  ];
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const before = widths.slice(0, -1).reduce((sum, width) => sum + width + 2, 0);
  const room = Math.max(MIN_INSTRUCTION_COLUMNS, columns - before);
  return rows
    .map((row) =>
      row
        .map((cell, column) => (column < row.length - 1 ? cell.padEnd(widths[column] ?? 0) : clip(cell, room)))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Cuts a text to a width and marks the cut. */
function clip(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, width - 1)}…`;
}

/** Formats one job for users. */
export function jobReport(summary: JobSummary): string {
  const { job, counts, failures, failuresByClass, usageByClass, price } = summary;
  const { task } = job;
  const usageOfClass = new Map(usageByClass);
  const unsampled = job.totalRows - counts.total;
  const lines = [
    `job       ${job.id}`,
    `status    ${job.status}${job.stop ? ` (${job.stop.reason})` : ""}`,
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
