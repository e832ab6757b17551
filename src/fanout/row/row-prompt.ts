import type { JsonObject } from "../../agent/api/response-events.ts";
import type { Template } from "../input/template.ts";
import type { JobRecord, NewItem, Row } from "../job.ts";
import { REPORT_TOOL_NAME, reportDefinition } from "./report-tool.ts";

/** First line of a row agent's message; test servers search for it. */
const FIRST_LINE = "You are processing one item for a generic agent job.";

/**
 * Returns the instructions of all agents of a job: the duties and the result schema. They precede the row, so that a
 * server can cache this prefix of the prompt.
 */
export function rowInstructions(schema: JsonObject | null): string {
  return [
    "You work on one row of a table, alone, and nobody can answer questions.",
    `Do what the task says, then call the \`${REPORT_TOOL_NAME}\` tool exactly once.`,
    "Give it the job id and the item id of your message, and `result` as a JSON object.",
    "Set `stop` to true only when the whole job should end early; rows that have not begun are then left alone.",
    "A report that is not accepted tells why: correct it and report again. Once a report is accepted you are done.",
    "",
    "Expected result schema (JSON Schema):",
    JSON.stringify(schema ?? {}, null, 2),
  ].join("\n");
}

/** First lines of the message of every row. */
const MESSAGE_START = [FIRST_LINE, "", "Task instruction:", ""].join("\n");

/**
 * Returns the message to one agent: the task, the item id, the row. Parts that differ between rows come last, because
 * servers bill a cached prefix at a fraction of the price.
 */
export function rowMessage(job: Pick<JobRecord, "id" | "headers">, item: NewItem, task: string): string {
  return [
    `${MESSAGE_START}${task}`,
    "",
    `Job ID: ${job.id}`,
    `Item ID: ${item.itemId}`,
    "",
    "Input row (JSON):",
    rowJson(job.headers, item.row),
  ].join("\n");
}

/**
 * Returns the number of characters that every call sends before its message: duties, schema, definition of the report
 * tool.
 */
export function fixedPromptChars(schema: JsonObject | null): number {
  return JSON.stringify(reportDefinition(schema)).length + rowInstructions(schema).length;
}

/** Returns the length of the prompt prefix that all rows of a job share, in characters. */
export function sharedPromptChars(schema: JsonObject | null, template: Template): number {
  return fixedPromptChars(schema) + MESSAGE_START.length + template.fixedStart.length;
}

/** Returns the row as JSON in table order. A plain object would put columns with numeric names first. */
export function rowJson(headers: readonly string[], row: Row): string {
  const known = new Set(headers);
  // While the table is still being read, columns that first appear in this row may be missing from the headers.
  const columns = [...headers, ...Object.keys(row).filter((column) => !known.has(column))];
  const fields = columns
    .filter((header) => Object.hasOwn(row, header))
    .map((header) => `  ${JSON.stringify(header)}: ${JSON.stringify(row[header], null, 2).replaceAll("\n", "\n  ")}`);
  return fields.length === 0 ? "{}" : `{\n${fields.join(",\n")}\n}`;
}
