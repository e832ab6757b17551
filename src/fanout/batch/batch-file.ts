import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { finished } from "node:stream/promises";
import type { ModelRequest } from "../../agent/api/model-api.ts";
import type { BatchApi } from "../../agent/batch/batch-api.ts";
import type { ItemRecord, JobRecord } from "../job.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import { REPORT_TOOL_NAME } from "../row/report-tool.ts";
import { type CommonPrompt, rowAttachments, rowRequest } from "../row/row-request.ts";

/** What the requests of all rows of a job have in common. */
export interface BatchTask {
  job: JobRecord;
  task: CompiledTask;
  common: CommonPrompt;
}

/** The first request of a row, as its agent would send it. */
export async function batchRequest(given: BatchTask, item: ItemRecord): Promise<ModelRequest> {
  const attachments = await rowAttachments(given.job, item);
  const { history, requestOptions, ...request } = rowRequest(
    given.job,
    given.task,
    given.common,
    item,
    attachments,
  );
  return {
    ...request,
    input: history,
    options: requestOptions,
    tools: [given.common.report],
    forcedTool: REPORT_TOOL_NAME,
    parallelToolCalls: false,
  };
}

/**
 * The line of one row; null for a row whose images or files cannot be read: a single call reports that error. The same row
 * always gives the same line, so a lost file can be written again.
 */
export async function batchLine(api: BatchApi, given: BatchTask, item: ItemRecord): Promise<string | null> {
  const request = await batchRequest(given, item).catch(() => null);
  return request && `${api.line(lineId(item.rowIndex), request)}\n`;
}

function lineId(rowIndex: number): string {
  return `row-${rowIndex}`;
}

/** The row index that a line id names; null for any other id. */
export function rowOfLine(id: string): number | null {
  const digits = /^row-(\d+)$/.exec(id)?.[1];
  return digits === undefined ? null : Number(digits);
}

/** Writes the lines of a part beside the job's files; the caller removes it. */
export async function writeBatchFile(
  folder: string,
  name: string,
  api: BatchApi,
  given: BatchTask,
  rows: AsyncIterable<ItemRecord>,
): Promise<string> {
  const file = path.join(folder, name);
  const stream = createWriteStream(file);
  try {
    for await (const item of rows) {
      const line = await batchLine(api, given, item);
      if (line !== null && !stream.write(line)) await once(stream, "drain");
    }
    stream.end();
    await finished(stream);
    return file;
  } catch (error) {
    stream.destroy();
    await rm(file, { force: true });
    throw error;
  }
}
