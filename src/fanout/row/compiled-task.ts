import { parseTemplate, type Template } from "../input/template.ts";
import type { JobTask } from "../job.ts";
import { compileResultCheck, type ResultCheck } from "./result-check.ts";

/** A job's task prepared for its rows: the instruction is parsed and the schema compiled once for all of them. */
export interface CompiledTask {
  readonly template: Template;
  readonly check: ResultCheck;
}

/** Rejects with an InputError when the instruction or the schema cannot be used. */
export async function compileTask(task: JobTask): Promise<CompiledTask> {
  return { template: parseTemplate(task.instruction), check: await compileResultCheck(task.schema) };
}
