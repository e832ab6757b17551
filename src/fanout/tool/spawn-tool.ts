import path from "node:path";
import { Readable } from "node:stream";
import type { RunContext } from "../../agent/headless-run.ts";
import { messageOf } from "../../base/error-message.ts";
import type { ApprovalPolicy } from "../../tools/policy/approval.ts";
import type { Tool } from "../../tools/tool.ts";
import { prepareInput } from "../input/table-input.ts";
import {
  DEFAULT_CONCURRENCY,
  DEFAULT_MAX_ATTEMPTS,
  DEFAULT_ROW_TIMEOUT_SECONDS,
  type JobTask,
  MAX_TOOL_CONCURRENCY,
} from "../job.ts";
import type { JobStore } from "../ledger/job-ledger.ts";
import type { JobEnd } from "../output/job-listener.ts";
import { summaryFields } from "../output/job-summary.ts";
import { ParentRunOutput } from "../output/parent-run-listener.ts";
import type { FolderJudge } from "../output/write-table.ts";
import { unwrapSchema } from "../row/result-schema.ts";
import type { RowResources } from "../run/row-resources.ts";
import { startOrResumeJob } from "../run/start-job.ts";
import { parseSpawnArguments, SPAWN_PARAMETERS, type SpawnArguments } from "./spawn-arguments.ts";
import { type TableAccess, TablePaths } from "./table-path-access.ts";

export interface SpawnToolOptions extends Omit<RowResources, "signal" | "concurrency"> {
  context: RunContext;
  cwd: string;
  /** Which tables the model may name. */
  access: TableAccess;
  /** Decides about tables outside of `access`; absent: none is used. */
  approval?: ApprovalPolicy;
  store: JobStore;
  jobsHome: string;
  model: string;
  reasoningEffort: string | null;
  /** Which tools the row agents have; `openTools` of the same options opens them. */
  rowTools: JobTask["tools"];
  /** The highest concurrency of a job, whatever the model requests. */
  maxThreads: number;
  defaultRuntimeSeconds?: number | undefined;
  /** Start over although the same job is known. */
  fresh?: boolean;
}

/** One blocking call: takes a table, runs one agent per row, returns a summary. */
export function createSpawnAgentsTool(options: SpawnToolOptions): Tool {
  const paths = new TablePaths(options.access, options.cwd, options.approval);
  return {
    definition: {
      name: "spawn_agents_on_csv",
      description: description(options.rowTools),
      parameters: SPAWN_PARAMETERS,
    },
    async call(args, call) {
      const parsed = parseSpawnArguments(args);
      if (typeof parsed === "string") return { text: parsed, ok: false };
      try {
        const signal = call?.signal ?? new AbortController().signal;
        const files = await judgeFiles(options, paths, parsed, signal);
        if (files.type === "refused") return { text: files.reason, ok: false };
        const end = await run(options, parsed, files, signal);
        const fields = summaryFields(end.summary);
        return { text: JSON.stringify(fields), ok: true, structured: fields };
      } catch (error) {
        return { text: messageOf(error), ok: false };
      }
    },
  };
}

interface GrantedFiles {
  type: "granted";
  input: string;
  output: (jobId: string) => string;
  judgeFolder: FolderJudge | undefined;
}

/** The paths of the table and the results, if the run's sandbox grants them. */
async function judgeFiles(
  options: SpawnToolOptions,
  paths: TablePaths,
  args: SpawnArguments,
  signal: AbortSignal,
): Promise<GrantedFiles | { type: "refused"; reason: string }> {
  const besideInput = (jobId: string) => {
    const { dir, name } = path.parse(path.resolve(options.cwd, args.csvPath));
    return path.join(dir, `${name}.agent-job-${jobId.slice(0, 8)}.csv`);
  };
  if (paths.isOpen) {
    const named = args.outputCsvPath === null ? null : path.resolve(options.cwd, args.outputCsvPath);
    const output = (jobId: string) => named ?? besideInput(jobId);
    return { type: "granted", input: args.csvPath, output, judgeFolder: undefined };
  }
  const input = await paths.judgeInput(args.csvPath, signal);
  if (input.type === "refused") return input;
  const judgeFolder: FolderJudge = (folder) => paths.refusalOf(folder);
  if (args.outputCsvPath !== null) {
    const output = await paths.judgeOutput(args.outputCsvPath, signal);
    if (output.type === "refused") return output;
    return { type: "granted", input: input.path, output: () => output.path, judgeFolder };
  }
  if ((await paths.refusalOf(path.dirname(input.path))) === null) {
    return { type: "granted", input: input.path, output: besideInput, judgeFolder };
  }
  // The job's own folder is not chosen by the model, so results may always be written there.
  const output = (jobId: string) => path.join(options.jobsHome, jobId, "results.csv");
  return { type: "granted", input: input.path, output, judgeFolder: undefined };
}

async function run(
  options: SpawnToolOptions,
  args: SpawnArguments,
  files: GrantedFiles,
  signal: AbortSignal,
): Promise<JobEnd> {
  const concurrency = effectiveConcurrency(options, args.maxConcurrency);
  const runtimeSeconds =
    args.maxRuntimeSeconds ?? options.defaultRuntimeSeconds ?? DEFAULT_ROW_TIMEOUT_SECONDS;
  await using input = await prepareInput({
    input: files.input,
    cwd: options.cwd,
    stdin: Readable.from([]),
    spoolFolder: options.jobsHome,
  });
  return await startOrResumeJob({
    store: options.store,
    jobsHome: options.jobsHome,
    input,
    task: {
      instruction: args.instruction,
      schema: args.outputSchema === null ? null : unwrapSchema(args.outputSchema),
      model: options.model,
      reasoningEffort: options.reasoningEffort,
      tools: options.rowTools,
      idColumn: args.idColumn,
    },
    settings: {
      maxAttempts: DEFAULT_MAX_ATTEMPTS,
      rowTimeoutMs: runtimeSeconds * 1000,
      rowLimit: null,
    },
    outputPath: files.output,
    export: { judgeFolder: files.judgeFolder },
    fresh: options.fresh ?? false,
    callModel: options.callModel,
    limiter: options.limiter,
    health: options.health,
    concurrency,
    openTools: options.openTools,
    signal,
    listener: new ParentRunOutput(options.context, options.clock),
    clock: options.clock,
  });
}

function effectiveConcurrency(options: SpawnToolOptions, requested: number | null): number {
  const ceiling = Math.max(MAX_TOOL_CONCURRENCY, options.maxThreads);
  const wanted = Math.min(ceiling, Math.max(1, requested ?? DEFAULT_CONCURRENCY));
  const effective = Math.min(wanted, options.maxThreads);
  if (requested !== null && effective !== requested) {
    const { context } = options;
    const message = `agent job concurrency: requested=${requested} max_threads=${options.maxThreads} effective=${effective}`;
    context.notify({ method: "warning", threadId: context.threadId, message }, { required: true });
  }
  return effective;
}

function description(rowTools: JobTask["tools"]): string {
  const tools = rowTools === "exec" ? "can run commands" : "have no tools but the report";
  return [
    "Works on a table with one agent a row, many at a time, and waits until all rows are done.",
    `Each agent gets the instruction with its row's values filled in and reports a JSON object. The agents ${tools}.`,
    "Returns counts and the path of a CSV with one line a row. The same call again goes on where an unfinished one ended.",
  ].join(" ");
}
