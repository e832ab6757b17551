import { constants } from "node:fs";
import { access, mkdir, stat } from "node:fs/promises";
import path from "node:path";
import { errorMessage } from "../../base/error-message.ts";
import { parseLosslessJson } from "../../base/lossless-json.ts";
import { isObject } from "../../base/type-guards.ts";
import type { DirectoryJudge, OutputFile } from "../../files/output-file.ts";
import { costInUsd, type Price } from "../cost/price-table.ts";
import { InputError, type ItemRecord, type JobRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import { csvLine } from "./csv-line.ts";
import { STDOUT, type WriteTableOptions, writeTable } from "./write-table.ts";

export interface ExportOptions {
  /** Whether to also write each field of the results to a separate column. */
  explode?: boolean;
  /** If set, the usage and cost of each row are written to separate columns. */
  costs?: { price: Price | null } | undefined;
  /**
   * Whether to put `'` before cells that a spreadsheet would run as a formula. Default: false, because it changes data.
   */
  escapeFormulas?: boolean;
  /** Decides whether results may be written to a directory; absent: any directory is allowed. */
  judgeDirectory?: DirectoryJudge | undefined;
}

/** Columns after those of the input, in this order, and their values. */
const OUTPUT_COLUMNS: Readonly<Record<string, (item: ItemRecord, job: JobRecord) => string | number | null>> = {
  job_id: (_, job) => job.id,
  item_id: (item) => item.itemId,
  row_index: (item) => item.rowIndex,
  source_id: (item) => item.sourceId,
  status: (item) => item.status,
  attempt_count: (item) => item.attempts,
  last_error: (item) => item.error,
  result_json: (item) => item.result,
  reported_at: (item) => timeText(item.reportedAtMs),
  completed_at: (item) => timeText(item.completedAtMs),
};

/** Prefix of an output column if the input has a column of the same name. */
const CLASH_PREFIX = "agent_";

/**
 * Writes one line per row, in table order, as CSV, TSV or JSON lines by extension. The write is atomic. Returns the row
 * count.
 */
export async function exportResults(
  ledger: JobLedger,
  job: JobRecord,
  file: OutputFile,
  options: ExportOptions = {},
): Promise<number> {
  const format = outputFormat(file.path);
  if (format === "jsonl") {
    const lines: WriteTableOptions = { ...options, line: ([text]) => `${text}\n`, header: false };
    return writeTable(file, [], lines, jsonRows(ledger, job, options));
  }
  const resultKeys = options.explode ? await collectResultKeys(ledger) : [];
  const columns = outputColumns(job.headers, resultKeys, options.costs ? COST_COLUMNS : []);
  const delimiter = format === "tsv" ? "\t" : ",";
  return writeTable(file, columns, { ...options, delimiter }, tableRows(ledger, job, resultKeys, options));
}

/** Returns rows as text, as `exportResults` writes them. The part that starts with the first row has the header. */
export function formatResults(job: JobRecord, items: readonly ItemRecord[], format: "csv" | "jsonl"): string {
  if (format === "jsonl") {
    const names = freeNames(OBJECT_COLUMNS, job.headers);
    return items.map((item) => `${jsonRow(job, item, names)}\n`).join("");
  }
  const header = items[0]?.rowIndex === 0 ? csvLine(outputColumns(job.headers, [], [])) : "";
  return header + items.map((item) => csvLine(tableRow(job, item))).join("");
}

function outputFormat(file: string): "csv" | "tsv" | "jsonl" {
  if (/\.(jsonl|ndjson)$/i.test(file)) return "jsonl";
  return /\.(tsv|tab)$/i.test(file) ? "tsv" : "csv";
}

/** Writes the failed rows with their errors, as a table that another job can read. */
export async function exportErrors(ledger: JobLedger, job: JobRecord, file: OutputFile): Promise<number> {
  const names = ["item_id", "row_index", "attempt_count", "error_class", "last_error"];
  const columns = [...job.headers, ...freeNames(names, job.headers)];
  const rows = async function* () {
    for await (const item of ledger.items({ statuses: ["failed"] })) {
      yield [
        ...inputCells(job, item),
        item.itemId,
        `${item.rowIndex}`,
        `${item.attempts}`,
        item.errorClass ?? "",
        item.error ?? "",
      ];
    }
  };
  return writeTable(file, columns, {}, rows());
}

/** Throws, before any model call, if the output cannot be written or is the input. */
export async function checkOutput(file: string, input: string): Promise<void> {
  if (file === STDOUT) return;
  if (await isSameFile(file, input)) {
    throw new InputError(`the output ${file} is the input; it would be overwritten`);
  }
  const directory = path.dirname(path.resolve(file));
  try {
    await mkdir(directory, { recursive: true });
    await access(directory, constants.W_OK);
    const existing = await stat(file).catch(() => null);
    if (existing?.isDirectory()) throw new Error("it is a directory");
  } catch (error) {
    throw new InputError(`the output ${file} cannot be written: ${errorMessage(error)}`, { cause: error });
  }
}

/** Reports whether two paths name the same file, also through links. */
export async function isSameFile(one: string, other: string): Promise<boolean> {
  if (path.resolve(one) === path.resolve(other)) return true;
  const [a, b] = await Promise.all([one, other].map((file) => stat(file).catch(() => null)));
  return a !== null && b !== null && a?.dev === b?.dev && a?.ino === b?.ino;
}

function outputColumns(headers: readonly string[], resultKeys: readonly string[], extra: readonly string[]): string[] {
  const own = freeNames([...Object.keys(OUTPUT_COLUMNS), ...extra], headers);
  const taken = [...headers, ...own];
  const resultNames = resultKeys.map((key) => `result.${key}`);
  return [...taken, ...freeNames(resultNames, taken)];
}

function freeNames(names: readonly string[], taken: readonly string[]): string[] {
  const used = new Set(taken);
  return names.map((name) => {
    let free = name;
    while (used.has(free)) free = `${CLASH_PREFIX}${free}`;
    used.add(free);
    return free;
  });
}

async function* tableRows(
  ledger: JobLedger,
  job: JobRecord,
  resultKeys: readonly string[],
  { costs }: ExportOptions,
): AsyncGenerator<string[], void, undefined> {
  for await (const item of ledger.items()) {
    const result = resultKeys.length > 0 ? parseResult(item) : {};
    yield [
      ...tableRow(job, item),
      ...(costs ? costCells(item, costs.price).map(cellText) : []),
      ...resultKeys.map((key) => (Object.hasOwn(result, key) ? cellText(result[key]) : "")),
    ];
  }
}

function tableRow(job: JobRecord, item: ItemRecord): string[] {
  return [...inputCells(job, item), ...Object.values(OUTPUT_COLUMNS).map((value) => cellText(value(item, job)))];
}

/** Yields each row as one JSON object: its cells unchanged, the output columns, and the reported result. */
async function* jsonRows(
  ledger: JobLedger,
  job: JobRecord,
  { costs }: ExportOptions,
): AsyncGenerator<string[], void, undefined> {
  const names = freeNames([...OBJECT_COLUMNS, ...(costs ? COST_COLUMNS : [])], job.headers);
  for await (const item of ledger.items()) yield [jsonRow(job, item, names, costs ? costCells(item, costs.price) : [])];
}

function jsonRow(
  job: JobRecord,
  item: ItemRecord,
  names: readonly string[],
  extra: readonly (number | null)[] = [],
): string {
  const values = [
    job.id,
    item.itemId,
    item.rowIndex,
    item.sourceId,
    item.status,
    item.attempts,
    item.errorClass,
    item.error,
    item.result === null ? null : parseLosslessJson(item.result),
    ...extra,
  ];
  const own = names.map((name, index) => [name, values[index]]);
  return JSON.stringify({ ...item.row, ...Object.fromEntries(own) });
}

const OBJECT_COLUMNS = [
  ...["job_id", "item_id", "row_index", "source_id", "status", "attempt_count", "error_class", "last_error"],
  "result",
];

/** Columns of `costs`, after the other output columns. */
const COST_COLUMNS = ["input_tokens", "cached_input_tokens", "output_tokens", "cost_usd"] as const;

function costCells({ usage }: ItemRecord, price: Price | null): (number | null)[] {
  const cost = price && Number(costInUsd(price, usage).toFixed(9));
  return [usage.inputTokens, usage.cachedInputTokens, usage.outputTokens, cost];
}

async function collectResultKeys(ledger: JobLedger): Promise<string[]> {
  const keys = new Set<string>();
  for await (const item of ledger.items({ statuses: ["completed"] })) {
    for (const key of Object.keys(parseResult(item))) keys.add(key);
  }
  return [...keys];
}

function parseResult(item: ItemRecord): Readonly<Record<string, unknown>> {
  const result: unknown = item.result === null ? {} : parseLosslessJson(item.result);
  return isObject(result) ? result : {};
}

function inputCells(job: JobRecord, item: ItemRecord): string[] {
  return job.headers.map((header) => (Object.hasOwn(item.row, header) ? cellText(item.row[header]) : ""));
}

/** Returns a cell as text: strings as they are, other values as JSON. */
export function cellText(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function timeText(ms: number | null): string {
  return ms === null ? "" : new Date(ms).toISOString().replace("Z", "+00:00");
}
