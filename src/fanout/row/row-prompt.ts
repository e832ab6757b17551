import type { JsonObject } from "../../agent/response-events.ts";
import type { JobRecord, NewItem, Row } from "../job.ts";
import { REPORT_TOOL_NAME } from "./report-tool.ts";

/** The line by which the prompt of a row agent is recognised; test servers look for it. */
const MARKER = "You are processing one item for a generic agent job.";

/**
 * What all agents of a job are told: the duties and the shape of the result. It comes before everything that differs from
 * row to row, so that a server which caches the beginning of prompts can.
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

/** What one agent is told: which item, the task, the row. */
export function rowMessage(job: Pick<JobRecord, "id" | "headers">, item: NewItem, task: string): string {
  return [
    MARKER,
    `Job ID: ${job.id}`,
    `Item ID: ${item.itemId}`,
    "",
    "Task instruction:",
    task,
    "",
    "Input row (JSON):",
    rowJson(job.headers, item.row),
  ].join("\n");
}

/** Columns in the table's order, also those whose names look like numbers, which an object would put first. */
function rowJson(headers: readonly string[], row: Row): string {
  const fields = headers
    .filter((header) => Object.hasOwn(row, header))
    .map(
      (header) =>
        `  ${JSON.stringify(header)}: ${JSON.stringify(row[header], null, 2).replaceAll("\n", "\n  ")}`,
    );
  return fields.length === 0 ? "{}" : `{\n${fields.join(",\n")}\n}`;
}
