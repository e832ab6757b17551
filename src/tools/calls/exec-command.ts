import { posix } from "node:path";
import { abortable } from "../../async/abort.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { ExecProcess, StartParams } from "../../exec/exec-process.ts";
import type { LoginEnvironment } from "../login/login-environment.ts";
import { CommandNetwork } from "../network/command-network.ts";
import { type NetworkWords, parseNetworkWords } from "../network/network-rules.ts";
import { type ApprovalRequest, describeCommand } from "../policy/approval.ts";
import { resolveWorkdir, type Workdir } from "../policy/resolve-workdir.ts";
import { hasManagedNetwork, narrowSandbox, type SandboxChoice, toSandboxRequest } from "../policy/sandbox-choice.ts";
import { NOT_EXPOSED, type SandboxExposure } from "../policy/sandbox-exposure.ts";
import { chooseShell } from "../policy/shell-choice.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession, ExecSessionCommand } from "../sessions/exec-session.ts";
import type { Tool, ToolCallContext, ToolOutput } from "../tool.ts";
import { type ExecCommandArguments, execCommandWithNetwork, toolDefinitions } from "./tool-definitions.ts";
import { validatedTool } from "./validated-tool.ts";
import { buildAnswer, errorAnswer, waitForYield } from "./yield-call.ts";
import { execWindowMs } from "./yield-window.ts";

/** Disables colors and pagers, because a model reads the output. As in Codex. */
const ADDED_ENVIRONMENT: Readonly<Record<string, string>> = {
  NO_COLOR: "1",
  TERM: "dumb",
  LANG: "C.UTF-8",
  LC_CTYPE: "C.UTF-8",
  LC_ALL: "C.UTF-8",
  COLORTERM: "",
  PAGER: "cat",
  GIT_PAGER: "cat",
  GH_PAGER: "cat",
};

/** Runs a command: approval, sandbox, start, wait. After a sandbox denial it runs again unsandboxed, if approved. */
export function execCommandTool(context: ExecContext): Tool {
  return {
    emitsOwnItems: true,
    ...(hasManagedNetwork(context.sandbox)
      ? validatedTool(execCommandWithNetwork, (args, call) => runNarrowed(context, args, call))
      : validatedTool(toolDefinitions.execCommand, (args, call) => run(context, args, call))),
  };
}

/** Runs a command whose argument `network` narrows its network. */
async function runNarrowed(
  context: ExecContext,
  { network = [], ...args }: ExecCommandArguments & { network?: string[] },
  call: ToolCallContext,
): Promise<ToolOutput> {
  if (network.length > 0 && args.sandbox_permissions === "require_escalated")
    return errorAnswer("exec_command: argument `network` conflicts with `require_escalated`, which has no sandbox");
  let words: NetworkWords | null;
  try {
    words = parseNetworkWords(network, "argument `network`");
  } catch (error) {
    return errorAnswer(`exec_command: ${errorMessage(error)}`);
  }
  return run(context, args, call, narrowSandbox(context.sandbox, words));
}

/** One tool call. */
interface ExecCall {
  sessionId: number;
  args: ExecCommandArguments;
  call: ToolCallContext;
}

async function run(
  context: ExecContext,
  args: ExecCommandArguments,
  call: ToolCallContext,
  sandbox: SandboxChoice = context.sandbox,
): Promise<ToolOutput> {
  const invocation: ExecCall = { sessionId: context.sessions.allocate(), args, call };
  const escalates = args.sandbox_permissions === "require_escalated" && context.sandbox.type !== "none";
  const choice: SandboxChoice = escalates ? { type: "none" } : sandbox;
  const prepared = await prepare(context, args, escalates ? "unsandboxed" : "command", choice, call.signal);
  if ("ok" in prepared) return prepared;
  const { request } = prepared;
  const permission = await context.gate.decide(request, call);
  if (permission.type === "refuse") return startFailure("declined", request, permission.reason);
  const ready = await captureLogin(context, prepared, choice, call.signal);
  if ("ok" in ready) return ready;
  const first = await attempt(context, invocation, ready, choice);
  if (first.type === "notStarted") return startFailure("failed", request, first.message);
  const last = await retryUnsandboxed(context, invocation, { ...first, exposed: prepared.exposure.home });
  if (last.type === "answered") return last.output;
  const { session } = last;
  const output = await buildAnswer(context, session, {
    sinceMs: session.startedAtMs,
    maxOutputTokens: args.max_output_tokens,
    signal: call.signal,
  });
  if (call.signal?.aborted) return output;
  const outputWithNotice = last.exposed ? context.startUpNotice.addTo(output, WITHOUT_START_UP_FILES) : output;
  const notice = loginFailureNotice(ready.login);
  return notice === null ? outputWithNotice : context.loginNotice.addTo(outputWithNotice, notice);
}

const WITHOUT_START_UP_FILES =
  "sandboxed commands can write the home directory; commands outside the sandbox run without start-up files and login environment";

interface StartedAttempt {
  type: "started";
  session: ExecSession;
  /** Whether the command ran without start-up files, because sandboxed commands could have written them. */
  exposed: boolean;
}

type FinalAttempt = StartedAttempt | { type: "answered"; output: ToolOutput };

/** Returns the session for the result: an unsandboxed second attempt after an approved denial, otherwise the first. */
async function retryUnsandboxed(
  context: ExecContext,
  invocation: ExecCall,
  first: StartedAttempt,
): Promise<FinalAttempt> {
  let hasRetryStarted = false;
  try {
    if (!isSandboxDenied(first.session)) return first;
    // The first attempt may have replaced directories by links, so the request is prepared again.
    const retry = await prepare(context, invocation.args, "retry", { type: "none" }, invocation.call.signal);
    // The item of the first attempt represents the call, so a failed second start emits no event.
    if ("ok" in retry) return { type: "answered", output: errorAnswer(retry.text) };
    const permission = await context.gate.decide(retry.request, invocation.call);
    if (permission.type === "refuse") return first;
    const ready = await captureLogin(context, retry, { type: "none" }, invocation.call.signal);
    if ("ok" in ready) return { type: "answered", output: errorAnswer(ready.text) };
    const second = await attempt(context, invocation, ready, { type: "none" }, () => {
      hasRetryStarted = true;
      first.session.settle(true);
    });
    if (second.type === "started") return { ...second, exposed: retry.exposure.home };
    const text = `exec_command: could not be run again without the sandbox: ${second.message}`;
    return { type: "answered", output: errorAnswer(text) };
  } finally {
    if (!hasRetryStarted) first.session.settle(false);
  }
}

/** Builds the result of a command that did not start. Includes the argv, because no event reports it. */
function startFailure(outcome: "declined" | "failed", { argv }: ApprovalRequest, reason: string): ToolOutput {
  const text = `exec_command ${outcome === "declined" ? "refused" : "failed"}: ${reason}`;
  return { ok: false, text, structured: { not_started: outcome, argv, reason } };
}

/** A command that is ready for approval and is then started unchanged. */
interface PreparedCommand {
  request: ApprovalRequest;
  /** The resolved working directory. */
  workdir: Workdir;
  exposure: SandboxExposure;
  /** Whether the command gets the login environment, which is captured after the approval. */
  takesLogin: boolean;
}

/** An approved command with its login environment. */
interface ReadyCommand extends PreparedCommand {
  /** Environment of the login profile; null if not requested or if the shell itself reads the profile. */
  login: LoginEnvironment | null;
}

/** Prepares a command, or returns the error result of an invalid call. */
async function prepare(
  context: ExecContext,
  args: ExecCommandArguments,
  kind: ApprovalRequest["kind"],
  choice: SandboxChoice,
  signal: AbortSignal | undefined,
): Promise<PreparedCommand | ToolOutput> {
  const requestedPath = posix.resolve(context.cwd, args.workdir ?? "");
  const { backend, newProcessId } = context;
  // The configured directory needs no check, unless a sandboxed command may have replaced it before an unsandboxed start.
  const isTrusted = requestedPath === context.cwd && (kind === "command" || context.sandbox.type === "none");
  let workdir: Workdir = { path: requestedPath, identity: undefined };
  let problem: string | null = null;
  try {
    if (!isTrusted) workdir = await resolveWorkdir(backend, requestedPath, newProcessId);
  } catch (error) {
    problem = errorMessage(error);
  }
  const shell = chooseShell(args.shell, context.shell, workdir.path);
  if (!shell) return errorAnswer(`exec_command: shell \`${args.shell}\` must be an absolute path`);
  const checksExposure = problem === null && choice.type === "none" && context.hasWritableRoots();
  const exposure = checksExposure ? await orAborted(context.exposure(workdir.path), signal) : NOT_EXPOSED;
  if (exposure === "aborted") return cancelledAnswer();
  // An unknown shell may print anything as its environment.
  const takesLogin = args.login === undefined && shell.kind !== "other" && !exposure.home;
  const request: ApprovalRequest = {
    kind,
    ...describeCommand(args.cmd, shell, {
      login: args.login ?? shell.kind === "other",
      startUpFiles: !exposure.home,
      prefixRule: args.prefix_rule,
    }),
    tty: args.tty ?? false,
    workdir: workdir.path,
    sandbox: choice.type,
    sandboxWritable: exposure.home || exposure.workdir,
    justification: args.justification,
  };
  if (problem !== null) return startFailure("failed", request, problem);
  return { request, workdir, exposure, takesLogin };
}

/**
 * Captures the login environment of an approved command if it takes one. The profile is code, so it runs in the sandbox
 * of the command.
 */
async function captureLogin(
  context: ExecContext,
  prepared: PreparedCommand,
  choice: SandboxChoice,
  signal: AbortSignal | undefined,
): Promise<ReadyCommand | ToolOutput> {
  if (!prepared.takesLogin) return { ...prepared, login: null };
  const [shell = context.shell] = prepared.request.argv;
  // Profiles run without network, so that commands with different network rules share one captured environment.
  const profileChoice = choice.type !== "none" && hasManagedNetwork(choice) ? { ...choice, network: false } : choice;
  const login = await orAborted(context.login(shell, profileChoice), signal);
  return login === "aborted" ? cancelledAnswer() : { ...prepared, login };
}

const cancelledAnswer = () => errorAnswer("exec_command: the call was cancelled before the command was started");

async function orAborted<T>(task: Promise<T>, signal: AbortSignal | undefined): Promise<T | "aborted"> {
  try {
    return await abortable(task, signal);
  } catch (error) {
    if (signal?.aborted) return "aborted";
    throw error;
  }
}

/** Returns a notice for the model if the login profile failed, or null. */
function loginFailureNotice(login: LoginEnvironment | null): string | null {
  return login?.type === "late" || login?.type === "failed"
    ? `${login.reason}; commands run without the login environment (login=true still runs a login shell)`
    : null;
}

function isSandboxDenied({ end, command }: ExecSession): boolean {
  return command.sandbox !== "none" && end?.type === "exited" && end.sandboxDenied;
}

type Attempt = { type: "started"; session: ExecSession } | { type: "notStarted"; message: string };

/**
 * Starts an approved command in the chosen sandbox and waits for its yield window. `onRetryStarted` marks a second attempt.
 * It is called after the start and before any event of that attempt.
 */
async function attempt(
  context: ExecContext,
  { sessionId, args, call }: ExecCall,
  { request, workdir, exposure, login }: ReadyCommand,
  choice: SandboxChoice,
  onRetryStarted?: () => void,
): Promise<Attempt> {
  const { cmd, argv, tty } = request;
  const network = commandNetwork(context, request, choice, call);
  const command: ExecSessionCommand = {
    cmd,
    argv: [...argv],
    cwd: workdir.path,
    tty,
    sandbox: choice.type,
    attempt: onRetryStarted ? 2 : 1,
    network,
  };
  const execution = executionContext(context, workdir.path, choice);
  let process: ExecProcess;
  try {
    process = await context.backend.start({
      ...(exposure.home ? withoutVariables(execution, START_UP_VARIABLES) : withLogin(execution, login)),
      cwdIdentity: workdir.identity,
      processId: context.newProcessId(),
      argv: [...argv],
      tty,
      size: tty ? context.terminalSize : undefined,
      // A model sends no terminal replies, and programs would wait for them forever.
      terminalQueries: tty ? "server" : undefined,
      pipeStdin: tty ? undefined : context.pipeStdin,
      mode: "prepared",
      ...network?.startParams,
    });
  } catch (error) {
    return { type: "notStarted", message: errorMessage(error) };
  }
  onRetryStarted?.();
  const session = await context.openSession(sessionId, process, command);
  await waitForYield(context, session, execWindowMs(args.yield_time_ms, context.yieldLimits), call);
  return { type: "started", session };
}

/** Returns the managed network of a command, or undefined if its sandbox has none. */
function commandNetwork(
  { gate, networkAnswers: answers }: ExecContext,
  command: ApprovalRequest,
  choice: SandboxChoice,
  call: ToolCallContext,
): CommandNetwork | undefined {
  if (choice.type === "none" || typeof choice.network === "boolean") return undefined;
  return new CommandNetwork({ network: choice.network, command, call, gate, answers });
}

type ExecutionContext = Pick<StartParams, "cwd" | "env" | "envPolicy" | "sandbox" | "sandboxScope">;

/** Returns working directory, environment and sandbox of a command. */
export function executionContext(context: ExecContext, cwd: string, choice: SandboxChoice): ExecutionContext {
  return {
    cwd,
    env: { ...ADDED_ENVIRONMENT, ...context.env },
    envPolicy: context.envPolicy ?? undefined,
    sandbox: toSandboxRequest(choice, context.tmpName),
    sandboxScope: context,
  };
}

/** Applies the changes of the login profile to the environment. */
function withLogin(execution: ExecutionContext, login: LoginEnvironment | null): ExecutionContext {
  if (login?.type !== "taken") return execution;
  const { set, unset } = login;
  const remaining = withoutVariables(execution, unset);
  return { ...remaining, env: { ...remaining.env, ...set } };
}

/** Variables that name a start-up file of a shell. */
const START_UP_VARIABLES = ["BASH_ENV", "ENV"];

function withoutVariables(execution: ExecutionContext, names: readonly string[]): ExecutionContext {
  const { env, envPolicy } = execution;
  return {
    ...execution,
    env: Object.fromEntries(Object.entries(env).filter(([name]) => !names.includes(name))),
    envPolicy: envPolicy && { ...envPolicy, exclude: [...envPolicy.exclude, ...names] },
  };
}
