import { fstatSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { IMAGE_TYPES } from "../../../agent/image-types.ts";
import { COLOR_CHOICES } from "../../../agent/output/ansi-style.ts";
import { errorMessage } from "../../../base/error-message.ts";
import { isObject } from "../../../base/type-guards.ts";
import type { SandboxMode } from "../../../tools/policy/sandbox-mode.ts";
import { UsageError } from "../../command.ts";
import type { HelpPage } from "../../help/help-page.ts";
import { AUDIT_OPTIONS, AUDIT_ROWS } from "../approval-options.ts";
import { resolveServerUrl, SERVER_OPTIONS } from "../connect-options.ts";
import { ENVIRONMENT_OPTIONS, ENVIRONMENT_ROWS, secretFilterFromFlags } from "../environment-options.ts";
import { ATTACHABLE_OPTIONS, parseSandbox } from "../host-options.ts";
import { NETWORK_OPTIONS, NETWORK_ROWS, parseNetworkFlag } from "../network-options.ts";
import { parseCount } from "../parse-number.ts";
import { parseChoice, parseOptions } from "../parse-options.ts";

/** Maximum model responses of a turn, so that a model that repeats itself ends. Codex's longest tasks stay below it. */
const DEFAULT_MAX_TURNS = 250;

const EXEC_ROWS: HelpPage["options"] = {
  Model: [
    ["-m, --model NAME", "model (default: gpt-5)"],
    ["-i, --image FILE", "image to send with the prompt; repeatable"],
    ["--output-schema FILE", "JSON Schema of the last message"],
    ["--max-turns N", `fail after N model responses without a final answer (default: ${DEFAULT_MAX_TURNS})`],
    ["--budget TOKENS", "fail instead of calling the model again after TOKENS tokens"],
    ["-c, --config KEY=VALUE", "override a setting; repeatable"],
  ],
  "Commands of the agent": [
    ["-C, --cd, --cwd DIR", "working directory (default: current directory, or that of the server)"],
    ["--add-dir DIR", "additional writable directory; repeatable"],
    ["--attachable", "let users attach to the terminals, for example to type a password (default: on with --connect)"],
    ...ENVIRONMENT_ROWS,
    ["--skip-git-repo-check", "accepted for compatibility; no check exists"],
  ],
  "Sandbox and approval": [
    ["-s, --sandbox MODE", "workspace-write, read-only, or danger-full-access for none (default: workspace-write)"],
    ...NETWORK_ROWS,
    ["--dangerously-bypass-approvals-and-sandbox", "no sandbox and no approval prompts; only for isolated hosts"],
    ["--ask", "ask on the terminal before a command runs unsandboxed, or, with --rules, where they say ask"],
    ["--rules FILE", "rules that allow, refuse or ask before a command; without --ask, ask means refuse"],
    ...AUDIT_ROWS,
  ],
  Output: [
    ["--json", "print events as JSON lines on stdout"],
    ["--color WHEN", "colors on stderr: always, never or auto (default: auto)"],
    ["-o, --output-last-message FILE", "also write the last message to FILE"],
    ["--ephemeral", "do not store the thread"],
    ["--progress-cursor", "draw progress in place although stderr is not a terminal"],
  ],
};

const EXIT_CODES = "0 the turn completed, 1 the turn failed or was interrupted, 130 SIGINT, 2 bad arguments";

export const EXEC_HELP: HelpPage = {
  usage: ["[OPTIONS] PROMPT", "[OPTIONS] resume THREAD_ID|--last PROMPT"],
  details: `Calls a model API (OPENAI_BASE_URL, OPENAI_API_KEY; with -c api=anthropic, ANTHROPIC_BASE_URL and
    ANTHROPIC_API_KEY). The agent can run commands, on this host or on a server. The last message goes to stdout, everything
    else to stderr. Without PROMPT, or with \`-\`, the prompt is read from stdin; input piped in addition to a PROMPT is
    appended as a <stdin> block.`,
  options: {
    ...EXEC_ROWS,
    "Settings of --config": [
      ["model", "model, as --model"],
      ["model_reasoning_effort", "reasoning effort of the model"],
      ["openai_base_url", "URL of the API, instead of OPENAI_BASE_URL"],
      ["api", "responses, chat or anthropic (default: derived from the URL)"],
      ["stream_idle_timeout_ms", "retry a call after this silence within an answer"],
      ["features.enable_fanout=true", "offer the tool spawn_agents_on_csv: one agent per table row"],
      ["agents.max_threads=64", "concurrent agents of a job"],
      ["agents.max_depth=1", "maximum nesting of jobs that start jobs"],
      ['agents.job_tools="none"', "tools of those agents in addition to reporting: none or exec"],
      ["agents.job_max_runtime_seconds=1800", "maximum time of a row"],
      ["agents.job_fresh=false", "start a new job instead of resuming the existing one"],
    ],
  },
  connection: true,
  examples: [
    ["procwire exec 'fix the failing test'", "an agent that may write below this directory"],
    ["git diff | procwire exec --sandbox read-only 'review this change'", "with piped input, without write access"],
    ["procwire exec --connect ssh://build-host --json 'why does the build fail?'", "commands run on another host"],
  ],
  exitCodes: EXIT_CODES,
};

export const EXEC_RESUME_HELP: HelpPage = {
  usage: ["[OPTIONS] THREAD_ID PROMPT", "[OPTIONS] --last PROMPT"],
  details: "Threads are stored in $PROCWIRE_HOME/threads or ~/.procwire/threads, unless --ephemeral is set.",
  options: { Thread: [["--last", "continue the most recent thread"]], ...EXEC_ROWS },
  connection: true,
  examples: [
    ["procwire exec resume --last 'now run the tests'", "continue the most recent thread"],
    ["procwire exec resume 0199a213-81c0-7800-8aa1-bbab2a035a53 'try again'", "continue a thread by its id"],
    ["procwire exec resume --last --json - < prompt.txt", "with the prompt in a file, and events as JSON lines"],
  ],
  exitCodes: EXIT_CODES,
};

export const EXEC_FLAGS = {
  model: { type: "string", short: "m" },
  cwd: { type: "string" },
  cd: { type: "string", short: "C" },
  "add-dir": { type: "string", multiple: true },
  image: { type: "string", short: "i", multiple: true },
  "output-schema": { type: "string" },
  "max-turns": { type: "string" },
  budget: { type: "string" },
  color: { type: "string" },
  "dangerously-bypass-approvals-and-sandbox": { type: "boolean" },
  ...SERVER_OPTIONS,
  ...ATTACHABLE_OPTIONS,
  sandbox: { type: "string", short: "s" },
  ...NETWORK_OPTIONS,
  ask: { type: "boolean" },
  rules: { type: "string" },
  ...AUDIT_OPTIONS,
  ...ENVIRONMENT_OPTIONS,
  config: { type: "string", short: "c", multiple: true },
  json: { type: "boolean" },
  "output-last-message": { type: "string", short: "o" },
  "progress-cursor": { type: "boolean" },
  "skip-git-repo-check": { type: "boolean" },
  ephemeral: { type: "boolean" },
} as const;

/** Flag of `procwire exec resume` in addition to `EXEC_FLAGS`. */
export const RESUME_FLAGS = { last: { type: "boolean" } } as const;

export type ExecOptions = NonNullable<ReturnType<typeof parseExecOptions>>;

/** Returns null if --help is set. */
export function parseExecOptions(argv: string[]) {
  const { values, positionals } = parseOptions({
    args: argv,
    allowPositionals: true,
    options: { ...EXEC_FLAGS, ...RESUME_FLAGS, help: { type: "boolean", short: "h" } },
  });
  if (values.help) return null;
  const resume = positionals[0] === "resume" ? { threadId: threadToResume(positionals, values.last) } : undefined;
  if (!resume && values.last) throw new UsageError("--last requires resume");
  const [prompt = "-", ...rest] = positionals.slice(!resume ? 0 : resume.threadId === null ? 1 : 2);
  if (rest.length > 0) throw new UsageError("give one PROMPT, in quotes");
  const color = parseChoice("color", values.color, COLOR_CHOICES) ?? "auto";
  const url = resolveServerUrl(values.connect);
  const connect = url === undefined ? [] : [url];
  const isLocal = connect.length === 0;
  const bypasses = values["dangerously-bypass-approvals-and-sandbox"] ?? false;
  if (bypasses && (values.sandbox !== undefined || values.ask))
    throw new UsageError("--dangerously-bypass-approvals-and-sandbox conflicts with --sandbox and --ask");
  const sandbox = bypasses ? "none" : parseExecSandbox(values.sandbox);
  return {
    prompt: prompt === "-" ? readPrompt() : appendStdin(checkPrompt(prompt)),
    resume,
    ephemeral: values.ephemeral ?? false,
    model: values.model,
    cwd: directory(values.cd ?? values.cwd, isLocal, "-C"),
    connect,
    sandbox,
    network: parseNetworkFlag(values.network, sandbox),
    credential: values.credential,
    writable: (values["add-dir"] ?? []).map((path) => directory(path, isLocal, "--add-dir") ?? path),
    images: (values.image ?? []).map(imageUrl),
    outputSchema: values["output-schema"] === undefined ? undefined : readSchema(values["output-schema"]),
    maxTurns: parseCount("max-turns", values["max-turns"]) ?? DEFAULT_MAX_TURNS,
    budgetTokens: parseCount("budget", values.budget),
    ask: values.ask ?? false,
    attachable: values.attachable ?? false,
    rules: values.rules,
    auditValues: values,
    connectValues: values,
    secretFilter: secretFilterFromFlags("exec", values),
    overrides: values.config ?? [],
    json: values.json ?? false,
    lastMessageFile: values["output-last-message"],
    color,
    progressInPlace: values["progress-cursor"] ?? false,
  };
}

/** Returns the thread id, or null for the most recent thread. */
function threadToResume([, threadId]: string[], isLast = false): string | null {
  if (isLast) return null;
  if (threadId === undefined) throw new UsageError("resume needs a THREAD_ID or --last");
  return threadId;
}

/** Codex's name of the flag that disables the sandbox. */
export const BYPASS_FLAG = "--dangerously-bypass-approvals-and-sandbox";

function parseExecSandbox(value = "workspace-write"): SandboxMode {
  return parseSandbox(value === "danger-full-access" ? "none" : value);
}

/** Validates a local directory before the run starts. A server reports a missing directory itself. */
function directory(named: string | undefined, isLocal: boolean, flag: string): string | undefined {
  if (named === undefined || !isLocal) return named;
  const resolved = path.resolve(named);
  if (!statSync(resolved, { throwIfNoEntry: false })?.isDirectory())
    throw new UsageError(`${flag} \`${named}\` is not a directory`);
  return resolved;
}

function imageUrl(file: string): string {
  const type = IMAGE_TYPES.get(path.extname(file).toLowerCase());
  if (!type) throw new UsageError(`--image \`${file}\` must be ${[...IMAGE_TYPES.keys()].join(", ")}`);
  return `data:${type};base64,${readOptionFile(file, "--image").toString("base64")}`;
}

function readSchema(file: string): Record<string, unknown> {
  const text = readOptionFile(file, "--output-schema").toString("utf8");
  try {
    const schema: unknown = JSON.parse(text);
    if (isObject(schema)) return schema;
  } catch (error) {
    throw new UsageError(`--output-schema ${file}: ${errorMessage(error)}`);
  }
  throw new UsageError(`--output-schema ${file} must hold a JSON object`);
}

function readOptionFile(file: string, flag: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new UsageError(`${flag}: ${errorMessage(error)}`);
  }
}

function readPrompt(): string {
  if (process.stdin.isTTY) throw new UsageError("no PROMPT given");
  return checkPrompt(readFileSync(0, "utf8").trim());
}

function checkPrompt(prompt: string): string {
  if (prompt.trim() === "") throw new UsageError("no PROMPT given");
  return prompt;
}

/** Appends stdin to the prompt if it is a pipe, a socket or a file; a terminal is not read. */
function appendStdin(prompt: string): string {
  const stdin = fstatSync(0, { bigint: false });
  if (!stdin.isFIFO() && !stdin.isFile() && !stdin.isSocket()) return prompt;
  const piped = readFileSync(0, "utf8");
  if (piped.trim() === "") return prompt;
  return `${prompt}\n\n<stdin>\n${piped}${piped.endsWith("\n") ? "" : "\n"}</stdin>`;
}
