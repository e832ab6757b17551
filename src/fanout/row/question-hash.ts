import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Template } from "../input/template.ts";
import type { JobTask, Row } from "../job.ts";
import { attachedFile } from "./attachments.ts";
import { rowJson } from "./row-prompt.ts";

/** Increase when the prompt for the same task and row changes. */
const PROMPT_VERSION = 1;
/** Enough to avoid collisions, and small beside a row. */
const QUESTION_BYTES = 16;

/**
 * Names what an agent is asked, without the ids of job and item: rows with the same name can share an answer. The
 * schema is left out, because an answer that fits a changed schema is still an answer. Undefined for agents with commands,
 * whose answers depend on more than the question, for votes, which are wanted anew, and for files that cannot be read.
 */
export async function questionOf(
  task: JobTask,
  template: Template,
  headers: readonly string[],
  row: Row,
): Promise<string | undefined> {
  if (task.tools !== "none" || (task.votes ?? 1) > 1) return undefined;
  // Everything else in a task (the model, its settings) may change the answer.
  const { instruction: _instruction, schema: _schema, idColumn: _idColumn, ...settings } = task;
  const parts: unknown[] = [PROMPT_VERSION, settings, template.render(row), rowJson(headers, row)];
  // A file is what is in it, whatever its name.
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
