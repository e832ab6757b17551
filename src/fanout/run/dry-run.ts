import { CHARS_PER_TOKEN } from "../../agent/token-usage.ts";
import type { TableInput } from "../input/table-input.ts";
import { TableRows } from "../input/table-rows.ts";
import type { JobTask, NewItem } from "../job.ts";
import { compileTask } from "../row/compiled-task.ts";
import { fixedPromptChars } from "../row/row-prompt.ts";
import { rowText } from "../row/row-request.ts";

export interface DryRun {
  rows: number;
  columns: readonly string[];
  /** Prompts of the first rows. */
  prompts: { itemId: string; text: string }[];
  /** Estimated input tokens, at four characters per token. Output tokens are extra. */
  inputTokens: number;
}

/** Rows whose prompts are shown: enough to check the instruction. */
const SHOWN_ROWS = 3;

/** Checks the table and renders prompts like a run, without a job or a model. */
export async function dryRun(input: TableInput, task: JobTask, rowLimit: number | null): Promise<DryRun> {
  const compiled = await compileTask(task);
  const rows = new TableRows({ input, task, template: compiled.template });
  const textOf = (item: NewItem) => rowText({ id: EXAMPLE_ID, headers: rows.headers, task }, compiled, item);
  const shown: NewItem[] = [];
  let count = 0;
  let chars = 0;
  for await (const item of rows.remainingRows(0)) {
    if (rowLimit !== null && item.rowIndex >= rowLimit) continue;
    count++;
    if (shown.length < SHOWN_ROWS) shown.push(item);
    chars += textOf(item).length;
  }
  // The messages of rows are counted completely, including their common text.
  const shared = fixedPromptChars(task.schema);
  return {
    rows: count,
    columns: rows.headers,
    prompts: shown.map((item) => ({ itemId: item.itemId, text: textOf(item) })),
    inputTokens: Math.ceil((chars + count * shared) / CHARS_PER_TOKEN),
  };
}

/** Placeholder for the job's id. */
const EXAMPLE_ID = "00000000-0000-4000-8000-000000000000";
