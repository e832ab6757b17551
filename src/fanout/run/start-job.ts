import { systemClock } from "../../async/clock.ts";
import { jobKey, type TableInput } from "../input/table-input.ts";
import { type FirstRows, TableRows } from "../input/table-rows.ts";
import type { JobRecord, JobSettings, JobTask } from "../job.ts";
import { checkOutput } from "../output/export-results.ts";
import type { JobEnd } from "../output/job-listener.ts";
import { type CompiledTask, compileTask } from "../row/compiled-task.ts";
import { questionOf } from "../row/question-hash.ts";
import { type CoordinatorOptions, coordinateJob } from "./coordinator.ts";

export interface StartJobOptions extends CoordinatorOptions {
  input: TableInput;
  task: JobTask;
  settings: JobSettings;
  /** Path of the output table; a function where the path contains the job's id. */
  outputPath: string | ((jobId: string) => string);
  /** Start over although the job is known. */
  fresh?: boolean;
  /** How much of the table is read before its rows are worked on; default: some megabytes. */
  firstRows?: FirstRows | undefined;
  newId?: () => string;
}

/** Finds or creates the job, works on its rows, writes its files. The same call again resumes where this one ended. */
export async function startOrResumeJob(options: StartJobOptions): Promise<JobEnd> {
  const task = await compileTask(options.task);
  const key = jobKey(options.input, options.task);
  const newId = options.newId?.() ?? crypto.randomUUID();
  const found = await options.store.withKey(key, options.signal, () =>
    findOrCreate(options, key, newId, task),
  );
  const { job, resumed, settings, outputPath, rows } = found;
  try {
    return await coordinateJob(options, { jobId: job.id, task, settings, outputPath, resumed, rows });
  } finally {
    await rows?.close();
  }
}

interface FoundJob {
  job: JobRecord;
  resumed: boolean;
  settings: JobSettings;
  outputPath: string;
  /** The rows of the table that the ledger does not have yet, if there are any. */
  rows: TableRows | null;
}

/** Large enough that the rest is soon read, small enough that the first row is asked without delay. */
const FIRST_ROWS: FirstRows = { rows: 10_000, chars: 8_000_000 };
/** For each of these rows a file is read as well. */
const FIRST_ROWS_WITH_FILES: FirstRows = { ...FIRST_ROWS, rows: 200 };

async function findOrCreate(
  options: StartJobOptions,
  key: string,
  newId: string,
  { template }: CompiledTask,
): Promise<FoundJob> {
  const { store, input, task, clock = systemClock } = options;
  const current = await store.find(key);
  // A new job is one that an interrupted run of this function has made.
  const known = options.fresh && current?.id !== newId ? null : current;
  const id = known?.id ?? newId;
  const outputPath = typeof options.outputPath === "string" ? options.outputPath : options.outputPath(id);
  await checkOutput(outputPath, input.path);
  const openRows = () =>
    new TableRows({
      input,
      task,
      template,
      nameQuestion: (headers, row) => questionOf(task, template, headers, row),
      signal: options.signal,
    });
  if (known) {
    // A job that began without reusing answers continues without them.
    const reuse = options.settings.reuse !== false && known.settings.reuse !== false;
    const settings = { ...options.settings, reuse };
    return { job: known, resumed: true, settings, outputPath, rows: known.isReading ? openRows() : null };
  }
  const settings = { ...options.settings, reuse: options.settings.reuse !== false && !options.fresh };
  const made = {
    id,
    key,
    task,
    settings,
    inputPath: input.name,
    outputPath,
    createdAtMs: clock.now(),
  };
  const rows = openRows();
  try {
    const first = options.firstRows ?? (task.imageColumns ? FIRST_ROWS_WITH_FILES : FIRST_ROWS);
    const job = await store.create(made, rows.first(first), () => ({
      headers: rows.headers,
      isReading: !rows.isWhole,
    }));
    if (job.isReading) return { job, resumed: false, settings, outputPath, rows };
    for (const warning of rows.warnings()) options.listener?.warning?.(warning);
    return { job, resumed: false, settings, outputPath, rows: null };
  } catch (error) {
    await rows.close();
    throw error;
  }
}
