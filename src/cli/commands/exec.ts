import { randomUUID } from "node:crypto";
import { homedir } from "node:os";
import { type ConfigOverrides, DEFAULT_MODEL, openModelApi, parseOverrides } from "../../agent/agent-config.ts";
import { API_KINDS } from "../../agent/api/choose-dialect.ts";
import type { ModelApi } from "../../agent/api/model-api.ts";
import { createModelCaller } from "../../agent/api/model-caller.ts";
import type { JsonObject } from "../../agent/api/response-events.ts";
import { baseInstructions } from "../../agent/base-instructions.ts";
import { type RunContext, type RunToolset, runHeadless } from "../../agent/headless-run.ts";
import { shouldUseColor } from "../../agent/output/ansi-style.ts";
import { HumanOutput } from "../../agent/output/human-output.ts";
import { JsonlOutput } from "../../agent/output/jsonl-output.ts";
import { latestThreadId, Rollout, readRollout, threadsDirectory } from "../../agent/rollout.ts";
import { userMessage } from "../../base/error-message.ts";
import { OutputFile } from "../../files/output-file.ts";
import type { HostPool } from "../../host/host-pool.ts";
import type { ApprovalPolicy } from "../../tools/policy/approval.ts";
import { SandboxUnavailableError } from "../../tools/policy/sandbox-choice.ts";
import type { Tool } from "../../tools/tool.ts";
import { VERSION } from "../../version.ts";
import { type Command, defineParsedCommand, UsageError } from "../command.ts";
import {
  BYPASS_FLAG,
  EXEC_FLAGS,
  EXEC_HELP,
  EXEC_RESUME_HELP,
  type ExecOptions,
  parseExecOptions,
  RESUME_FLAGS,
} from "../options/agent/exec-options.ts";
import { approvalPolicy, auditApprovals } from "../options/approval-options.ts";
import { credentialsFromFlags } from "../options/credential-options.ts";
import { openHostPool } from "../options/host-options.ts";
import { asksAboutNetwork, networkFromFlags } from "../options/network-options.ts";
import { InterruptedError, runInterruptible } from "../support/interruptible-run.ts";

const run = (options: ExecOptions) => runInterruptible((signal) => runExec(options, signal));

const resume: Command = defineParsedCommand("exec resume", EXEC_RESUME_HELP, {
  options: { ...EXEC_FLAGS, ...RESUME_FLAGS },
  parse: (argv) => parseExecOptions(["resume", ...argv]),
  run,
});

const turn: Command = defineParsedCommand("exec", EXEC_HELP, {
  options: EXEC_FLAGS,
  parse: parseExecOptions,
  run,
});

export const command: Command = {
  ...turn,
  subcommands: { resume: async () => resume },
  run: (argv) => (argv[0] === "resume" ? resume.run(argv.slice(1)) : turn.run(argv)),
};

async function runExec(options: ExecOptions, signal: AbortSignal): Promise<number> {
  const config = await readConfig(options);
  const threads = threadsDirectory(process.env, homedir());
  const resume = options.resume && resumeThread(threads, options.resume.threadId);
  await using lastMessage =
    options.lastMessageFile === undefined ? null : await OutputFile.open(options.lastMessageFile);
  const api = openModelApi(process.env, config.api);
  const asksNetwork = asksAboutNetwork(options.network);
  using prompt = options.ask || asksNetwork ? await openApprovalPrompt(options.ask ? "--ask" : "--network ask") : null;
  using audited = await auditApprovals(
    await approvalPolicy(
      options.rules,
      options.ask ? prompt?.policy : undefined,
      asksNetwork ? prompt?.policy : undefined,
    ),
    options.auditValues,
  );
  const approval = audited.policyFor();
  const credentials = credentialsFromFlags(options.credential, approval, { isLocal: options.connect.length === 0 });
  await using hosts = await openHostPool({
    ...options,
    network: networkFromFlags(options.network, approval, options.sandbox, credentials),
    credentials: credentials.definitions,
    values: options.connectValues,
    approval,
    reopens: true,
    unsandboxed: BYPASS_FLAG,
    secretFlags: audited.secretFlags,
  });
  const cwd = options.cwd ?? (options.connect.length === 0 ? process.cwd() : "the server's working directory");
  const output = options.json
    ? new JsonlOutput(process.stdout)
    : new HumanOutput({
        stdout: process.stdout,
        stderr: process.stderr,
        banner: banner(options, config, cwd),
        progressInPlace: options.progressInPlace || undefined,
        color: shouldUseColor(options.color, process.stderr, process.env),
      });
  for (const key of config.unknownKeys) output.warning(`unknown setting ${key} is ignored`);
  using thread = options.ephemeral ? null : openThreadFile(threads, (message) => output.warning(message));
  try {
    const end = await runHeadless({
      prompt: options.prompt,
      resume,
      onHistory: thread ? (threadId, item) => thread.append(threadId, item) : undefined,
      images: options.images,
      outputSchema: options.outputSchema,
      maxTurns: options.maxTurns,
      maxTurnsHint: "--max-turns N raises the limit",
      budgetTokens: options.budgetTokens,
      model: config.model,
      instructions: baseInstructions({ cwd, tools: true }),
      reasoningEffort: config.reasoningEffort,
      callModel: createModelCaller({ api }),
      createTools: (context) => createTools(context, config, hosts, api),
      output,
      signal,
      newId: randomUUID,
    });
    if (end.type === "completed") {
      await lastMessage?.write([end.lastMessage ?? ""]);
      return 0;
    }
    const byUser = end.type === "interrupted" && signal.reason instanceof InterruptedError;
    return byUser && signal.reason.signal === "SIGINT" ? 130 : 1;
  } finally {
    api.close();
  }
}

function resumeThread(home: string, named: string | null): { threadId: string; history: JsonObject[] } {
  const threadId = named ?? latestThreadId(home);
  if (threadId === null) throw new UsageError(`no thread to resume in ${home}`);
  const history = readRollout(home, threadId);
  if (!history) throw new UsageError(`unknown thread \`${threadId}\` in ${home}`);
  return { threadId, history };
}

/** Opens the thread file of a run on first use. A run does not fail because the file cannot be written; it warns once. */
function openThreadFile(home: string, warn: (message: string) => void) {
  let rollout: Rollout | null = null;
  let hasFailed = false;
  return {
    append(threadId: string, item: JsonObject): void {
      if (hasFailed) return;
      try {
        // The first item is the prompt: the file is open before the first command runs.
        rollout ??= new Rollout(home, threadId);
        rollout.append(item);
      } catch (error) {
        hasFailed = true;
        warn(`the thread cannot be resumed later: ${userMessage(error)}`);
      }
    },
    [Symbol.dispose]: () => rollout?.[Symbol.dispose](),
  };
}

/** Opens an approval prompt on the controlling terminal, even if stdin and stdout are files. */
async function openApprovalPrompt(flag: string): Promise<Disposable & { policy: ApprovalPolicy }> {
  const [{ askOnTerminal }, { openControllingTerminal }] = await Promise.all([
    import("../../tools/policy/ask-on-terminal.ts"),
    import("../terminal/controlling-terminal.ts"),
  ]);
  const terminal = openControllingTerminal();
  if (!terminal) throw new UsageError(`${flag} requires a terminal`);
  return { policy: askOnTerminal(terminal), [Symbol.dispose]: () => terminal[Symbol.dispose]() };
}

type ExecConfig = Awaited<ReturnType<typeof readConfig>>;

async function readConfig(options: ExecOptions) {
  const overrides: ConfigOverrides = await parseOverrides(options.overrides);
  const { MAX_TOOL_CONCURRENCY } = await import("../../fanout/job.ts");
  const fanout = {
    maxThreads: overrides.count("agents.max_threads") ?? MAX_TOOL_CONCURRENCY,
    maxDepth: overrides.count("agents.max_depth") ?? 1,
    runtimeSeconds: overrides.count("agents.job_max_runtime_seconds"),
    tools: overrides.oneOf("agents.job_tools", ["none", "exec"]) ?? "none",
    fresh: overrides.boolean("agents.job_fresh") ?? false,
  };
  return {
    model: options.model ?? overrides.string("model") ?? DEFAULT_MODEL,
    reasoningEffort: overrides.string("model_reasoning_effort"),
    api: {
      baseUrl: overrides.string("openai_base_url"),
      kind: overrides.oneOf("api", API_KINDS),
      idleTimeoutMs: overrides.count("stream_idle_timeout_ms"),
    },
    // Tables are always on this host.
    tablesCwd: options.connect.length === 0 ? (options.cwd ?? process.cwd()) : process.cwd(),
    sandbox: options.sandbox,
    runsElsewhere: options.connect.length > 0,
    fanout: overrides.boolean("features.enable_fanout") ? fanout : null,
    unknownKeys: overrides.unknownKeys(),
  };
}

async function createTools(
  context: RunContext,
  config: ExecConfig,
  hosts: HostPool,
  api: ModelApi,
): Promise<RunToolset> {
  const opened = await hosts.openTools().catch((error: unknown) => {
    throw suggestBypass(error);
  });
  if (!config.fanout) return opened;
  const spawn = await spawnTool(context, config, config.fanout, hosts, api);
  return { ...opened, tools: [...opened.tools, spawn] };
}

/** Adds a hint at the bypass flag. Commands never run unsandboxed implicitly. */
function suggestBypass(error: unknown): unknown {
  if (!(error instanceof Error) || !isSandboxMissing(error)) return error;
  return new Error(`${error.message}; ${BYPASS_FLAG} runs commands without one`, { cause: error });
}

function isSandboxMissing(error: unknown): boolean {
  if (error instanceof SandboxUnavailableError) return true;
  if (error instanceof AggregateError) return error.errors.some(isSandboxMissing);
  return error instanceof Error && isSandboxMissing(error.cause);
}

/** Creates the tool that starts jobs. All jobs of this run, including nested jobs, share one rate limiter. */
async function spawnTool(
  context: RunContext,
  config: ExecConfig,
  fanout: NonNullable<ExecConfig["fanout"]>,
  hosts: HostPool,
  api: ModelApi,
): Promise<Tool> {
  const [{ createRowCaller }, { createSpawnAgentsTool }, { tableAccess }, { SqliteStore }, { jobsDirectory }] =
    await Promise.all([
      import("../../fanout/run/row-resources.ts"),
      import("../../fanout/tool/spawn-tool.ts"),
      import("../../fanout/tool/table-path-access.ts"),
      import("../../fanout/ledger/sqlite/sqlite-store.ts"),
      import("../../fanout/ledger/jobs-directory.ts"),
    ]);
  const home = jobsDirectory(process.env, process.cwd());
  const caller = createRowCaller(api, { width: fanout.maxThreads });
  const atDepth = (depth: number): Tool =>
    createSpawnAgentsTool({
      context,
      cwd: config.tablesCwd,
      access: tableAccess(config.sandbox, config.tablesCwd, config.runsElsewhere),
      store: new SqliteStore(home),
      jobsHome: home,
      model: config.model,
      reasoningEffort: config.reasoningEffort ?? null,
      rowTools: fanout.tools,
      maxThreads: fanout.maxThreads,
      defaultRuntimeSeconds: fanout.runtimeSeconds,
      fresh: fanout.fresh,
      ...caller,
      openTools: async (job) => {
        const opened = job.task.tools === "exec" ? await hosts.openTools() : NO_TOOLS;
        const nested = depth < fanout.maxDepth ? [atDepth(depth + 1)] : [];
        return opened === NO_TOOLS && nested.length === 0
          ? null
          : { tools: [...opened.tools, ...nested], close: opened.close };
      },
    });
  return atDepth(1);
}

const NO_TOOLS: RunToolset = { tools: [], close: async () => undefined };

function banner(options: ExecOptions, config: ExecConfig, cwd: string): string[] {
  return [
    `procwire ${VERSION}`,
    `workdir: ${cwd}`,
    ...(options.connect.length > 0 ? [`server: ${options.connect.join(", ")}`] : []),
    `model: ${config.model}`,
    `sandbox: ${options.sandbox}`,
    "--------",
    "user",
    options.prompt,
  ];
}
