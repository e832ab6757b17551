import type { ModelRequest } from "../../agent/api/model-api.ts";
import type { BatchApi } from "../../agent/batch/batch-api.ts";
import type { OutputDirectory, PendingFile } from "../../files/output-directory.ts";
import type { ItemRecord, JobRecord } from "../job.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import { REPORT_TOOL_NAME } from "../row/report-tool.ts";
import { type CommonPrompt, rowAttachments, rowRequest } from "../row/row-request.ts";

/** The parts that the requests of all rows of a job share. */
export interface BatchTask {
  job: JobRecord;
  task: CompiledTask;
  common: CommonPrompt;
}

/** Returns the first request of a row agent. */
export async function batchRequest(batchTask: BatchTask, item: ItemRecord): Promise<ModelRequest> {
  const attachments = await rowAttachments(batchTask.job, item);
  const { history, requestOptions, ...request } = rowRequest(
    batchTask.job,
    batchTask.task,
    batchTask.common,
    item,
    attachments,
  );
  return {
    ...request,
    input: history,
    options: requestOptions,
    tools: [batchTask.common.report],
    forcedTool: REPORT_TOOL_NAME,
    parallelToolCalls: false,
  };
}

/**
 * Returns the line of one row, or null if an image or file is unreadable, which a single call reports. The same row
 * always has the same line, so a lost file can be written again.
 */
export async function batchLine(api: BatchApi, batchTask: BatchTask, item: ItemRecord): Promise<string | null> {
  const request = await batchRequest(batchTask, item).catch(() => null);
  return request && `${api.encodeRequest(`row-${item.rowIndex}`, request)}\n`;
}

/** Returns the row index of a line id, or null for any other id. */
export function rowOfLine(id: string): number | null {
  const digits = /^row-(\d+)$/.exec(id)?.[1];
  return digits === undefined ? null : Number(digits);
}

/** Writes the lines of a batch group to a temporary file in the job directory. Disposal removes the file. */
export async function writeBatchFile(
  directory: OutputDirectory,
  api: BatchApi,
  batchTask: BatchTask,
  rows: AsyncIterable<ItemRecord>,
): Promise<PendingFile> {
  await using stack = new AsyncDisposableStack();
  const file = stack.use(await directory.create());
  const lines = async function* () {
    for await (const item of rows) yield (await batchLine(api, batchTask, item)) ?? "";
  };
  await file.handle.writeFile(lines());
  stack.move();
  return file;
}
