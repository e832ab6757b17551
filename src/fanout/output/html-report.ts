import type { OutputFile } from "../../files/output-file.ts";
import { costInUsd, formatUsdExact } from "../cost/price-table.ts";
import type { ItemRecord, ItemStatus } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import { REPORT_SCRIPT, REPORT_STYLE } from "./html-report-assets.ts";
import { formatUsage } from "./job-progress.ts";
import type { JobSummary } from "./job-summary.ts";

/**
 * Maximum number of rows on the page, because browsers scroll slowly beyond it. The results table contains all rows.
 */
const MAX_SHOWN_ROWS = 5_000;

/** Writes a job as one self-contained page without other files or network access. Returns the number of rows shown. */
export async function writeHtmlReport(ledger: JobLedger, summary: JobSummary, file: OutputFile): Promise<number> {
  let shown = 0;
  const page = async function* () {
    yield head(summary);
    for await (const item of shownItems(ledger)) {
      shown++;
      yield rowHtml(item, summary);
    }
    yield foot(shown, summary);
  };
  await file.write(page());
  return shown;
}

/** Yields failed rows first, because they are the usual reason to open a report. */
async function* shownItems(ledger: JobLedger): AsyncGenerator<ItemRecord, void, undefined> {
  const order: ItemStatus[][] = [["failed"], ["completed", "running", "pending"]];
  let shown = 0;
  for (const statuses of order) {
    for await (const item of ledger.items({ statuses })) {
      if (shown++ >= MAX_SHOWN_ROWS) return;
      yield item;
    }
  }
}

function head(summary: JobSummary): string {
  const { job, counts, price, failuresByClass } = summary;
  const used = formatUsage(counts.usage, price && costInUsd(price, counts.usage));
  const facts: [string, string][] = [
    ["status", job.stop ? `${job.status} (${job.stop.reason})` : job.status],
    [
      "rows",
      `${counts.completed} completed, ${counts.failed} failed, ${counts.running + counts.pending} open of ${job.totalRows}`,
    ],
    ["used", price ? used : `${used}; the price of ${job.task.model} is not known`],
    ["model", job.task.model],
    ["task", job.task.instruction],
    ["input", job.inputPath],
    ["output", job.outputPath],
    ["created", new Date(job.createdAtMs).toISOString()],
  ];
  const title = `agent job ${job.id.slice(0, 8)}`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>${title}</title>
<style>${REPORT_STYLE}</style>
</head>
<body>
<h1>${title}</h1>
<dl>${facts.map(([name, value]) => `<dt>${name}</dt><dd>${escapeHtml(value)}</dd>`).join("\n")}</dl>
${failureTable(summary)}
<form>
<label>status <select id="status"><option value="">all</option>${["completed", "failed", "running", "pending"].map(option).join("")}</select></label>
<label>failure <select id="class"><option value="">all</option>${failuresByClass.map(([errorClass]) => option(errorClass)).join("")}</select></label>
<label>text <input id="text" type="search"></label>
<output id="count"></output>
</form>
<table id="rows">
<thead><tr><th>item</th><th>status</th><th>row</th><th>result or error</th><th>attempts</th><th>tokens</th><th>cost</th></tr></thead>
<tbody>
`;
}

function failureTable({ failuresByClass, usageByClass, price }: JobSummary): string {
  if (failuresByClass.length === 0) return "";
  const used = new Map(usageByClass);
  const rows = failuresByClass.map(([errorClass, count]) => {
    const usage = used.get(errorClass);
    const cost = price && usage ? formatUsdExact(costInUsd(price, usage)) : "";
    return `<tr><td>${errorClass}</td><td>${count}</td><td>${cost}</td></tr>`;
  });
  return `<table id="failures"><thead><tr><th>failure</th><th>rows</th><th>cost</th></tr></thead><tbody>${rows.join("")}</tbody></table>`;
}

function rowHtml(item: ItemRecord, { price }: JobSummary): string {
  const resultOrError = item.status === "failed" ? `${item.errorClass}: ${item.error}` : (item.result ?? "");
  const cells = [
    item.itemId,
    item.status,
    JSON.stringify(item.row),
    resultOrError,
    `${item.attempts}`,
    formatUsage(item.usage, null),
    price ? formatUsdExact(costInUsd(price, item.usage)) : "",
  ];
  const failure = item.status === "failed" ? (item.errorClass ?? "") : "";
  return `<tr data-status="${item.status}" data-class="${failure}">${cells.map((cell) => `<td>${escapeHtml(cell)}</td>`).join("")}</tr>\n`;
}

function foot(shown: number, { counts, job }: JobSummary): string {
  const left = counts.total - shown;
  const note = left > 0 ? `<p>${left} more rows are not shown; ${escapeHtml(job.outputPath)} has them all.</p>` : "";
  return `</tbody>\n</table>\n${note}\n<script>${REPORT_SCRIPT}</script>\n</body>\n</html>\n`;
}

function option(value: string): string {
  return `<option>${value}</option>`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Escapes untrusted cells and answers, so that they cannot become markup. */
function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ENTITIES[char] ?? char);
}
