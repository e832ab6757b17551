import path from "node:path";
import { Readable } from "node:stream";
import type { RunContext } from "../../agent/headless-run.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { DirectoryJudge } from "../../files/output-file.ts";
import type { Tool } from "../../tools/tool.ts";
import { prepareInput } from "../input/table-input.ts";
import { DEFAULT_CONCURRENCY, type JobTask, MAX_TOOL_CONCURRENCY } from "../job.ts";
import { DEFAULT_ROW_TIMEOUT_SECONDS, newJobSettings } from "../job-settings.ts";
import type { JobStore } from "../ledger/job-ledger.ts";
import type { JobEnd } from "../output/job-listener.ts";
import { summaryFields } from "../output/job-summary.ts";
import { ParentRunListener } from "../output/parent-run-listener.ts";
import { unwrapSchema } from "../row/result-schema.ts";
import type { RowResources } from "../run/row-resources.ts";
import { startOrResumeJob } from "../run/start-job.ts";
import { parseSpawnArguments, SPAWN_PARAMETERS, type SpawnArguments } from "./spawn-arguments.ts";
import { type TableAccess, TablePathPolicy } from "./table-path-access.ts";

export interface SpawnToolOptions extends Omit<RowResources, "signal" | "concurrency"> {
  context: RunContext;
  cwd: string;
  /** Tables that the model may name. Others are rejected. */
  access: TableAccess;
  store: JobStore;
  jobsHome: string;
  model: string;
  reasoningEffort: string | null;
  /** Tools of the row agents; `openTools` opens them. */
  rowTools: JobTask["tools"];
  /** Maximum concurrency of a job, whatever the model requests. */
  maxThreads: number;
  defaultRuntimeSeconds?: number | undefined;
  /** Whether to start a new job instead of resuming the existing one. */
  fresh?: boolean;
}

/** Creates the tool: one blocking call that runs one agent per row of a table and returns a summary. */
export function createSpawnAgentsTool(options: SpawnToolOptions): Tool {
  const { access, cwd, jobsHome } = options;
  const threads = path.join(path.dirname(jobsHome), "threads");
  const paths = new TablePathPolicy(access, cwd, [jobsHome, threads]);
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
        const files = await authorizeFiles(options, paths, parsed);
        if (files.type === "refused") return { text: files.reason, ok: false };
        const end = await run(options, parsed, files, signal);
        const fields = summaryFields(end.summary);
        return { text: JSON.stringify(fields), ok: true, structured: fields };
      } catch (error) {
        return { text: errorMessage(error), ok: false };
      }
    },
  };
}

interface AuthorizedFiles {
  type: "granted";
  input: string;
  output: (jobId: string) => string;
  judgeDirectory: DirectoryJudge | undefined;
}

/** Returns the paths of the table and the results, if the sandbox of the run grants them. */
async function authorizeFiles(
  options: SpawnToolOptions,
  paths: TablePathPolicy,
  args: SpawnArguments,
): Promise<AuthorizedFiles | { type: "refused"; reason: string }> {
  const defaultOutputPath = (jobId: string) => {
    const { dir, name } = path.parse(path.resolve(options.cwd, args.csvPath));
    return path.join(dir, `${name}.agent-job-${jobId.slice(0, 8)}.csv`);
  };
  if (paths.isOpen) {
    const named = args.outputCsvPath === null ? null : path.resolve(options.cwd, args.outputCsvPath);
    const output = (jobId: string) => named ?? defaultOutputPath(jobId);
    return { type: "granted", input: args.csvPath, output, judgeDirectory: undefined };
  }
  const input = await paths.checkInput(args.csvPath);
  if (input.type === "refused") return input;
  const judgeDirectory: DirectoryJudge = (directory) => paths.denialReason(directory);
  if (args.outputCsvPath !== null) {
    const output = await paths.checkOutput(args.outputCsvPath);
    if (output.type === "refused") return output;
    return { type: "granted", input: input.path, output: () => output.path, judgeDirectory };
  }
  if ((await paths.denialReason(path.dirname(input.path))) === null) {
    return { type: "granted", input: input.path, output: defaultOutputPath, judgeDirectory };
  }
  // The model does not choose the job directory, so results may always be written there.
  const output = (jobId: string) => path.join(options.jobsHome, jobId, "results.csv");
  return { type: "granted", input: input.path, output, judgeDirectory: undefined };
}

async function run(
  options: SpawnToolOptions,
  args: SpawnArguments,
  files: AuthorizedFiles,
  signal: AbortSignal,
): Promise<JobEnd> {
  const concurrency = effectiveConcurrency(options, args.maxConcurrency);
  const runtimeSeconds = args.maxRuntimeSeconds ?? options.defaultRuntimeSeconds ?? DEFAULT_ROW_TIMEOUT_SECONDS;
  await using input = await prepareInput({
    input: files.input,
    cwd: options.cwd,
    stdin: Readable.from([]),
    spoolDirectory: options.jobsHome,
  });
  return await startOrResumeJob({
    ...options,
    input,
    task: {
      instruction: args.instruction,
      schema: args.outputSchema === null ? null : unwrapSchema(args.outputSchema),
      model: options.model,
      reasoningEffort: options.reasoningEffort,
      tools: options.rowTools,
      idColumn: args.idColumn,
    },
    settings: newJobSettings({ rowTimeoutMs: runtimeSeconds * 1000 }),
    outputPath: files.output,
    export: { judgeDirectory: files.judgeDirectory },
    concurrency,
    signal,
    listener: new ParentRunListener(options.context, options.clock),
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
