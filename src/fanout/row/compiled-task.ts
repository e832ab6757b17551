import { parseTemplate, type Template } from "../input/template.ts";
import type { JobTask } from "../job.ts";
import { compileResultCheck, type ResultCheck } from "./result-check.ts";

/** The task of a job with its instruction parsed and its schema compiled, once for all rows. */
export interface CompiledTask {
  readonly template: Template;
  readonly check: ResultCheck;
}

/** Compiles a task. Rejects with an `InputError` if the instruction or schema is invalid. */
export async function compileTask(task: JobTask): Promise<CompiledTask> {
  return { template: parseTemplate(task.instruction), check: await compileResultCheck(task.schema) };
}
