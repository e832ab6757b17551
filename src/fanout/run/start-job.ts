import { systemClock } from "../../async/clock.ts";
import { jobKey, type TableInput } from "../input/table-input.ts";
import { type InitialRowLimits, TableRows } from "../input/table-rows.ts";
import type { JobTask } from "../job.ts";
import type { JobSettings } from "../job-settings.ts";
import { checkOutput } from "../output/export-results.ts";
import type { JobEnd } from "../output/job-listener.ts";
import { type CompiledTask, compileTask } from "../row/compiled-task.ts";
import { hashQuestion } from "../row/question-hash.ts";
import { type CoordinatedJob, type CoordinatorOptions, coordinateJob } from "./coordinator.ts";

export interface StartJobOptions extends CoordinatorOptions {
  input: TableInput;
  task: JobTask;
  settings: JobSettings;
  /** Path of the output table, or a function if the path contains the job id. */
  outputPath: string | ((jobId: string) => string);
  /** Whether to start a new job instead of resuming the existing one. */
  fresh?: boolean;
  /** Part of the table to read before the work begins. Default: some megabytes. */
  firstRows?: InitialRowLimits | undefined;
  newId?: () => string;
}

/** Finds or creates the job, runs it and writes its files. The same call again resumes the job. */
export async function startOrResumeJob(options: StartJobOptions): Promise<JobEnd> {
  const task = await compileTask(options.task);
  const key = jobKey(options.input, options.task);
  const newId = options.newId?.() ?? crypto.randomUUID();
  const found = await options.store.withKey(key, options.signal, () => findOrCreate(options, key, newId, task));
  try {
    return await coordinateJob(options, found);
  } finally {
    await found.rows?.close();
  }
}

/** Initial part of a table: large enough that the rest is soon read, small enough that the first row starts soon. */
const FIRST_ROWS: InitialRowLimits = { rows: 10_000, chars: 8_000_000 };
/** Each of these rows also requires reading a file. */
const FIRST_ROWS_WITH_FILES: InitialRowLimits = { ...FIRST_ROWS, rows: 200 };

async function findOrCreate(
  options: StartJobOptions,
  key: string,
  newId: string,
  compiled: CompiledTask,
): Promise<CoordinatedJob> {
  const { template } = compiled;
  const { store, input, task, clock = systemClock } = options;
  const current = await store.find(key);
  // With `fresh`, only a job that an interrupted run of this function created counts as existing.
  const known = options.fresh && current?.id !== newId ? null : current;
  const id = known?.id ?? newId;
  const outputPath = typeof options.outputPath === "string" ? options.outputPath : options.outputPath(id);
  await checkOutput(outputPath, input.path);
  const openRows = () =>
    new TableRows({
      input,
      task,
      template,
      hashQuestion: (headers, row) => hashQuestion(task, template, headers, row),
      signal: options.signal,
    });
  if (known) {
    // A job that began without answer reuse continues without it.
    const reuse = options.settings.reuse !== false && known.settings.reuse !== false;
    const settings = { ...options.settings, reuse };
    const rows = known.isReading ? openRows() : null;
    return { jobId: id, task: compiled, resumed: true, settings, outputPath, rows };
  }
  const settings = { ...options.settings, reuse: options.settings.reuse !== false && !options.fresh };
  const newJob = { id, key, task, settings, inputPath: input.name, outputPath, createdAtMs: clock.now() };
  const rows = openRows();
  try {
    const first = options.firstRows ?? (task.imageColumns ? FIRST_ROWS_WITH_FILES : FIRST_ROWS);
    const job = await store.create(newJob, rows.initialRows(first), () => ({
      headers: rows.headers,
      isReading: !rows.isWhole,
    }));
    const created = { jobId: id, task: compiled, resumed: false, settings, outputPath };
    if (job.isReading) return { ...created, rows };
    for (const warning of rows.warnings()) options.listener?.warning?.(warning);
    return created;
  } catch (error) {
    await rows.close();
    throw error;
  }
}
