import type { JsonObject } from "../../agent/api/response-events.ts";
import type { TurnOptions } from "../../agent/turn.ts";
import type { ToolDefinition } from "../../tools/tool.ts";
import type { ItemRecord, JobRecord, JobTask, NewItem } from "../job.ts";
import { attachmentsOf, withoutAttached } from "./attachments.ts";
import type { CompiledTask } from "./compiled-task.ts";
import { reportDefinition } from "./report-tool.ts";
import { modelForAttempt } from "./row-model.ts";
import { rowInstructions, rowMessage } from "./row-prompt.ts";

/** The parts of the prompt that all agents of a job share. */
export interface CommonPrompt {
  instructions: string;
  report: ToolDefinition;
}

export function commonPrompt(job: Pick<JobRecord, "task">): CommonPrompt {
  const { schema } = job.task;
  return { instructions: rowInstructions(schema), report: reportDefinition(schema) };
}

/** The first request of a row agent. */
export type RowRequest = Pick<
  TurnOptions,
  "model" | "instructions" | "reasoningEffort" | "requestOptions" | "cacheKey" | "history"
>;

/** Returns the text of a row's message. Attached `data:` URLs are not repeated in it. */
export function rowText(
  job: Pick<JobRecord, "id" | "headers"> & { task: Pick<JobTask, "imageColumns"> },
  { template }: Pick<CompiledTask, "template">,
  item: NewItem,
): string {
  const shownItem = { ...item, row: withoutAttached(item.row, job.task.imageColumns ?? []) };
  return rowMessage(job, shownItem, template.render(shownItem.row));
}

/** Builds the first request of a row. `attachments`: result of `attachmentsOf`. */
export function rowRequest(
  job: JobRecord,
  task: CompiledTask,
  common: CommonPrompt,
  item: ItemRecord,
  attachments: readonly JsonObject[],
): RowRequest {
  const { request } = job.task;
  const text = rowText(job, task, item);
  return {
    model: modelForAttempt(job, item),
    instructions: common.instructions,
    reasoningEffort: job.task.reasoningEffort ?? undefined,
    requestOptions: { ...request, serviceTier: job.settings.serviceTier },
    cacheKey: job.id,
    history: [{ type: "message", role: "user", content: [{ type: "input_text", text }, ...attachments] }],
  };
}

export function rowAttachments(job: JobRecord, item: ItemRecord): Promise<JsonObject[]> {
  return attachmentsOf(item.row, job.task.imageColumns ?? []);
}
