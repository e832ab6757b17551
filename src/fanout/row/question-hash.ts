import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Template } from "../input/template.ts";
import { type JobTask, QUESTION_BYTES, type Row } from "../job.ts";
import { attachedFile } from "./attachments.ts";
import { rowJson } from "./row-prompt.ts";

/** Increase when the prompt for the same task and row changes. */
const PROMPT_VERSION = 1;

/**
 * Hashes the prompt of a row without the ids of job and item: rows with equal hashes can share an answer. The schema is
 * excluded, because reused answers are checked against the current schema.
 * Returns undefined if answers cannot be reused: with commands (answers depend on more than the prompt), with votes
 * (each needs a new answer), and with unreadable files.
 */
export async function hashQuestion(
  task: JobTask,
  template: Template,
  headers: readonly string[],
  row: Row,
): Promise<string | undefined> {
  if (task.tools !== "none" || (task.votes ?? 1) > 1) return undefined;
  // All other members of a task, such as the model, may change the answer.
  const { instruction: _instruction, schema: _schema, idColumn: _idColumn, ...settings } = task;
  const parts: unknown[] = [PROMPT_VERSION, settings, template.render(row), rowJson(headers, row)];
  // A file is identified by its content, not by its name.
  const files = (task.imageColumns ?? []).flatMap((column) => attachedFile(row[column]) ?? []);
  try {
    for (const file of files)
      parts.push(
        createHash("sha256")
          .update(await readFile(file))
          .digest("hex"),
      );
  } catch {
    return undefined;
  }
  const hash = createHash("sha256").update(JSON.stringify(parts)).digest();
  return hash.subarray(0, QUESTION_BYTES).toString("hex");
}
