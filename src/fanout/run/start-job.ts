import { systemClock } from "../../async/clock.ts";
import { checkIdColumn, ItemIds } from "../input/item-ids.ts";
import { randomSample } from "../input/random-sample.ts";
import { openTable } from "../input/table.ts";
import { jobKey, type TableInput } from "../input/table-input.ts";
import { checkColumns } from "../input/template.ts";
import type { JobRecord, JobSettings, JobTask } from "../job.ts";
import { checkOutput } from "../output/export.ts";
import type { JobEnd } from "../output/job-listener.ts";
import { checkImageColumns } from "../row/attachments.ts";
import { type CompiledTask, compileTask } from "../row/compiled-task.ts";
import { questionOf } from "../row/reuse-question.ts";
import { type CoordinatorOptions, coordinateJob } from "./coordinator.ts";

export interface StartJobOptions extends CoordinatorOptions {
  input: TableInput;
  task: JobTask;
  settings: JobSettings;
  /** Where the table goes; a function where the name holds the job's id. */
  outputPath: string | ((jobId: string) => string);
  /** Start over although the job is known. */
  fresh?: boolean;
  newId?: () => string;
}

/** Finds or makes the job, works on its rows, writes its files. The same call again goes on where this one ended. */
export async function startOrResumeJob(options: StartJobOptions): Promise<JobEnd> {
  const task = await compileTask(options.task);
  const key = jobKey(options.input, options.task);
  const { job, resumed, settings, outputPath } = await options.store.withKey(key, options.signal, () =>
    findOrCreate(options, key, task),
  );
  return coordinateJob(options, { jobId: job.id, task, settings, outputPath, resumed });
}

async function findOrCreate(
  options: StartJobOptions,
  key: string,
  { template }: CompiledTask,
): Promise<{ job: JobRecord; resumed: boolean; settings: JobSettings; outputPath: string }> {
  const { store, input, task, clock = systemClock, newId = () => crypto.randomUUID() } = options;
  const known = options.fresh ? null : await store.find(key);
  const id = known?.id ?? newId();
  const outputPath = typeof options.outputPath === "string" ? options.outputPath : options.outputPath(id);
  await checkOutput(outputPath, input.path);
  if (known) {
    // A job that was begun without the answers of others stays without them.
    const reuse = options.settings.reuse !== false && known.settings.reuse !== false;
    return { job: known, resumed: true, settings: { ...options.settings, reuse }, outputPath };
  }
  const settings = { ...options.settings, reuse: options.settings.reuse !== false && !options.fresh };
  const table = openTable(input.path, input.format, input.name, input.reading);
  const ids = new ItemIds(task.idColumn);
  const rows = async function* () {
    for await (const row of table.rows()) {
      options.signal.throwIfAborted();
      yield { ...ids.item(row), question: questionOf(task, template, table.headers, row) };
    }
    // Only now are all columns known.
    checkIdColumn(task.idColumn, table.headers);
    checkColumns(template, table.headers);
    checkImageColumns(task.imageColumns ?? [], table.headers);
  };
  const made = {
    id,
    key,
    task,
    settings,
    inputPath: input.name,
    outputPath,
    createdAtMs: clock.now(),
  };
  const { randomSample: size } = input.reading;
  const items = size === undefined ? rows() : randomSample(rows(), size, input.sha256);
  const job = await store.create(made, items, () => table.headers);
  if (table.skipped.count > 0) {
    options.listener?.warning?.(
      `${table.skipped.count} rows cannot be read and are left out; the first: ${table.skipped.first}`,
    );
  }
  if (ids.duplicates > 0) {
    const column = task.idColumn ?? "";
    options.listener?.warning?.(
      `${ids.duplicates} rows have an id in ${column} that an earlier row has; they are named with -2, -3 and so on`,
    );
  }
  return { job, resumed: false, settings, outputPath };
}
