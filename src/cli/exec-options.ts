import { readFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import type { GuardOptions } from "../exec/host-environment.ts";
import type { SandboxMode } from "../fanout/row/host-pool.ts";
import { UsageError } from "./command.ts";
import type { ConnectValues } from "./connect-options.ts";
import { ENVIRONMENT_OPTIONS, guardFromFlags } from "./environment-options.ts";
import { checkConnectUrls, parseSandbox } from "./exec-hosts.ts";

export const EXEC_HELP = `Usage: procwire exec [options] PROMPT

Runs one agent turn against a Responses API (OPENAI_BASE_URL, OPENAI_API_KEY). The agent can run commands, here or on a
server. Everything but its last message goes to stderr. PROMPT may be \`-\`, or left out, to read it from stdin.

  -m, --model NAME     the model (default gpt-5)
  -C, --cwd DIR        where its commands run; default: here, or where the server runs
      --connect URL    run its commands on that server: ws://HOST:PORT, wss://HOST:PORT or unix://PATH
      --token-file PATH  the token the server asks for; or PROCWIRE_TOKEN in the environment
      --sandbox MODE   walls around its commands: none (default), read-only or workspace-write
      --ask            ask on the terminal before a command runs without a sandbox, or, with --rules, where these want
                       somebody to be asked
      --rules FILE     which commands may run; what it would ask about is refused, unless there is --ask
      --inherit-env NAME  pass a variable on to its commands although it looks like a secret; may be repeated
      --verbose        say which variables were left out as secrets
  -c KEY=VALUE         change a setting, may be repeated:
                         model, model_reasoning_effort, openai_base_url, stream_idle_timeout_ms,
                         features.enable_fanout=true   offer spawn_agents_on_csv: one agent a row of a table
                         agents.max_threads=64         agents at a time in a job
                         agents.max_depth=1            how deep jobs may start jobs
                         agents.job_tools="none"       none, or exec: what those agents can do besides reporting
                         agents.job_max_runtime_seconds=1800, agents.job_fresh=false
      --json           events as JSON lines on stdout
  -o, --output-last-message FILE  also write the last message there
      --progress-cursor      draw progress in place although stderr is no terminal
      --skip-git-repo-check  accepted; nothing is checked

Exit codes: 0 the turn completed, 1 it failed or was interrupted, 130 you interrupted it, 2 bad arguments.
`;

export interface ExecOptions {
  prompt: string;
  model: string | undefined;
  cwd: string | undefined;
  connect: string[];
  sandbox: SandboxMode;
  ask: boolean;
  rules: string | undefined;
  connectValues: ConnectValues;
  guard: GuardOptions;
  overrides: string[];
  json: boolean;
  lastMessageFile: string | undefined;
  progressInPlace: boolean;
}

/** Null when help was asked for. */
export function parseExecOptions(argv: string[]): ExecOptions | null {
  const { values, positionals } = parseArgs({
    args: argv,
    allowPositionals: true,
    options: {
      model: { type: "string", short: "m" },
      cwd: { type: "string", short: "C" },
      connect: { type: "string" },
      "token-file": { type: "string" },
      sandbox: { type: "string" },
      ask: { type: "boolean" },
      rules: { type: "string" },
      ...ENVIRONMENT_OPTIONS,
      config: { type: "string", short: "c", multiple: true },
      json: { type: "boolean" },
      "output-last-message": { type: "string", short: "o" },
      "progress-cursor": { type: "boolean" },
      "skip-git-repo-check": { type: "boolean" },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help) return null;
  const [prompt = "-", ...rest] = positionals;
  if (rest.length > 0) throw new UsageError("only one PROMPT is taken; put it in quotes");
  const connect = values.connect === undefined ? [] : [values.connect];
  checkConnectUrls(connect);
  return {
    prompt: prompt === "-" ? readPrompt() : prompt,
    model: values.model,
    cwd: values.cwd === undefined || connect.length > 0 ? values.cwd : path.resolve(values.cwd),
    connect,
    sandbox: parseSandbox(values.sandbox),
    ask: values.ask ?? false,
    rules: values.rules,
    connectValues: { "token-file": values["token-file"] },
    guard: guardFromFlags("exec", values),
    overrides: values.config ?? [],
    json: values.json ?? false,
    lastMessageFile: values["output-last-message"],
    progressInPlace: values["progress-cursor"] ?? false,
  };
}

function readPrompt(): string {
  if (process.stdin.isTTY) throw new UsageError("no PROMPT given");
  const prompt = readFileSync(0, "utf8").trim();
  if (prompt === "") throw new UsageError("no PROMPT given");
  return prompt;
}
