import { posix } from "node:path";
import { abortable } from "../../async/abort.ts";
import { messageOf } from "../../base/error-message.ts";
import type { ExecProcess, StartParams } from "../../exec/exec-process.ts";
import type { LoginEnvironment } from "../login/login-environment.ts";
import type { ApprovalRequest } from "../policy/approval.ts";
import { describeCommand } from "../policy/approval.ts";
import { realWorkdir, type Workdir } from "../policy/resolve-workdir.ts";
import type { SandboxChoice } from "../policy/sandbox-choice.ts";
import { sandboxIntent } from "../policy/sandbox-choice.ts";
import { chooseShell } from "../policy/shell-choice.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession, SessionCommand } from "../sessions/exec-session.ts";
import type { Tool, ToolCallContext, ToolOutput } from "../tool.ts";
import type { ExecCommandArguments } from "./tool-definitions.ts";
import { definitions, execCommandSchema } from "./tool-definitions.ts";
import { checkedTool } from "./validated-tool.ts";
import { answer, refusal, waitWindow } from "./yield-call.ts";
import { execWindowMs } from "./yield-window.ts";

/** Quiet, colourless and without a pager: made for reading, not for looking at. As in Codex. */
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

/** Runs a command: approval, walls, start, wait; once more without the walls when they were in the way and may go. */
export function execCommandTool(context: ExecContext): Tool {
  return {
    tellsItself: true,
    ...checkedTool(definitions.execCommand, execCommandSchema, (args, call) => run(context, args, call)),
  };
}

/** One call, from its arguments to its answer. */
interface Invocation {
  sessionId: number;
  args: ExecCommandArguments;
  call: ToolCallContext;
}

async function run(
  context: ExecContext,
  args: ExecCommandArguments,
  call: ToolCallContext,
): Promise<ToolOutput> {
  const invocation: Invocation = { sessionId: context.sessions.allocate(), args, call };
  const escalates = args.sandbox_permissions === "require_escalated" && context.sandbox.type !== "none";
  const choice: SandboxChoice = escalates ? { type: "none" } : context.sandbox;
  const prepared = await prepare(context, args, escalates ? "unsandboxed" : "command", choice, call.signal);
  if ("ok" in prepared) return prepared;
  const { request } = prepared;
  const permission = await context.gate.permit(request, call);
  if (permission.type === "refused") return notStarted("declined", request, permission.reason);
  const first = await attempt(context, invocation, prepared, choice);
  if (first.type === "notStarted") return notStarted("failed", request, first.message);
  const last = await againIfDenied(context, invocation, first.session);
  if (last.type === "answered") return last.output;
  const { session } = last;
  const output = await answer(context, session, {
    sinceMs: session.startedAtMs,
    maxOutputTokens: args.max_output_tokens,
    signal: call.signal,
  });
  const notice = noticeOf(prepared.login);
  return notice === null || call.signal?.aborted ? output : context.loginNotice.addTo(output, notice);
}

type LastAttempt = { type: "started"; session: ExecSession } | { type: "answered"; output: ToolOutput };

/** The session to answer from: a second one without walls when they were in the way and may go, else the first. */
async function againIfDenied(
  context: ExecContext,
  invocation: Invocation,
  first: ExecSession,
): Promise<LastAttempt> {
  let runsAgain = false;
  try {
    if (!wasDenied(first)) return { type: "started", session: first };
    // The first attempt may have put links where directories were, so the request is made anew.
    const retry = await prepare(context, invocation.args, "retry", { type: "none" }, invocation.call.signal);
    // The item of the first attempt stands for the call, so no event is to tell of one that never started.
    if ("ok" in retry) return { type: "answered", output: refusal(retry.text) };
    const again = await context.gate.permit(retry.request, invocation.call);
    if (again.type === "refused") return { type: "started", session: first };
    const second = await attempt(context, invocation, retry, { type: "none" }, () => {
      runsAgain = true;
      first.settle(true);
    });
    if (second.type === "started") return second;
    const why = `exec_command: could not be run again without the sandbox: ${second.message}`;
    return { type: "answered", output: refusal(why) };
  } finally {
    if (!runsAgain) first.settle(false);
  }
}

/** No event tells of it, so the answer does. */
function notStarted(how: "declined" | "failed", { argv }: ApprovalRequest, reason: string): ToolOutput {
  const text = `exec_command ${how === "declined" ? "refused" : "failed"}: ${reason}`;
  return { ok: false, text, structured: { not_started: how, argv, reason } };
}

/** A command that is ready to be judged, and then to be started exactly so. */
interface Prepared {
  request: ApprovalRequest;
  /** The directory that was looked at for it. */
  workdir: Workdir;
  /** What a login shell would add to its environment; null where it is not wanted, or the shell adds it itself. */
  login: LoginEnvironment | null;
}

/** What would be started; or the answer to a call that cannot be carried out. */
async function prepare(
  context: ExecContext,
  args: ExecCommandArguments,
  kind: ApprovalRequest["kind"],
  choice: SandboxChoice,
  signal: AbortSignal | undefined,
): Promise<Prepared | ToolOutput> {
  const named = posix.resolve(context.cwd, args.workdir ?? "");
  const { backend, newProcessId } = context;
  // The configured directory is taken as it is, unless a command behind walls may have swapped it for one outside of them.
  const isTrusted = named === context.cwd && (kind === "command" || context.sandbox.type === "none");
  let workdir: Workdir = { path: named, identity: undefined };
  let problem: string | null = null;
  try {
    if (!isTrusted) workdir = await realWorkdir(backend, named, newProcessId);
  } catch (error) {
    problem = messageOf(error);
  }
  const shell = chooseShell(args.shell, context.shell, workdir.path);
  if (!shell) return refusal(`exec_command: shell \`${args.shell}\` must be an absolute path`);
  // A shell that is neither configured nor the system's own may be anything, so it is not run before it is judged.
  const takes = problem === null && args.login === undefined && shell.kind !== "other";
  const login = takes ? await orAborted(context.login(shell.path, choice), signal) : null;
  if (login === "aborted")
    return refusal("exec_command: the call was cancelled before the command was started");
  const request: ApprovalRequest = {
    kind,
    ...describeCommand(args.cmd, shell, {
      login: needsLoginShell(args, login),
      prefixRule: args.prefix_rule,
    }),
    tty: args.tty ?? false,
    workdir: workdir.path,
    sandbox: choice.type,
    justification: args.justification,
  };
  return problem === null ? { request, workdir, login } : notStarted("failed", request, problem);
}

async function orAborted<T>(task: Promise<T>, signal: AbortSignal | undefined): Promise<T | "aborted"> {
  try {
    return await abortable(task, signal);
  } catch (error) {
    if (signal?.aborted) return "aborted";
    throw error;
  }
}

/** A login shell is needed only where its environment is wanted and was not taken beforehand. */
function needsLoginShell(
  { login: wanted = true }: ExecCommandArguments,
  login: LoginEnvironment | null,
): boolean {
  return wanted && login?.type !== "taken" && login?.type !== "late";
}

/** What a model should know of a profile that could not be used as usual. */
function noticeOf(login: LoginEnvironment | null): string | null {
  switch (login?.type) {
    case "late":
      return `${login.reason}; commands run without the login environment (login=true runs a login shell all the same)`;
    case "failed":
      return `the login environment could not be taken once for all commands: ${login.reason}; each command runs in a login shell`;
    default:
      return null;
  }
}

/** The walls that were put up here were in the way. */
function wasDenied({ end, command }: ExecSession): boolean {
  return command.sandbox !== "none" && end?.type === "exited" && end.sandboxDenied;
}

type Attempt = { type: "started"; session: ExecSession } | { type: "notStarted"; message: string };

/**
 * Starts what was permitted, behind the chosen walls, and waits out its window. `onAgain` makes it the second attempt, and
 * is called once that has started, before any event of it.
 */
async function attempt(
  context: ExecContext,
  { sessionId, args, call }: Invocation,
  { request: { cmd, argv, tty }, workdir, login }: Prepared,
  choice: SandboxChoice,
  onAgain?: () => void,
): Promise<Attempt> {
  const command: SessionCommand = {
    cmd,
    argv: [...argv],
    cwd: workdir.path,
    tty,
    sandbox: choice.type,
    attempt: onAgain ? 2 : 1,
  };
  const started = await start(context, command, { workdir, choice, login });
  if (typeof started === "string") return { type: "notStarted", message: started };
  onAgain?.();
  const session = await context.openSession(sessionId, started, command);
  await waitWindow(context, session, execWindowMs(args.yield_time_ms, context.yieldLimits), call);
  return { type: "started", session };
}

/** The process, or why there is none, in the words of the backend that could not start it. */
async function start(
  context: ExecContext,
  { argv, tty }: SessionCommand,
  { workdir, choice, login }: Pick<Prepared, "workdir" | "login"> & { choice: SandboxChoice },
): Promise<ExecProcess | string> {
  try {
    return await context.backend.start({
      ...withLogin(startIn(context, workdir.path, choice), login),
      cwdIdentity: workdir.identity,
      processId: context.newProcessId(),
      argv: [...argv],
      tty,
      size: tty ? context.terminalSize : undefined,
      // A model is no terminal; without an answer programs that ask would wait for ever.
      terminalQueries: tty ? "server" : undefined,
      pipeStdin: tty ? undefined : context.pipeStdin,
      mode: "prepared",
    });
  } catch (error) {
    return messageOf(error);
  }
}

type Surroundings = Pick<StartParams, "cwd" | "env" | "envPolicy" | "sandbox" | "sandboxScope">;

/** What every command has around it: directory, environment, walls. */
export function startIn(context: ExecContext, cwd: string, choice: SandboxChoice): Surroundings {
  return {
    cwd,
    env: { ...ADDED_ENVIRONMENT, ...context.env },
    envPolicy: context.envPolicy,
    sandbox: sandboxIntent(choice, context.tmpName),
    sandboxScope: context,
  };
}

/** The same with what a login shell's profile sets and removes, as if the profile had just run. */
function withLogin(surroundings: Surroundings, login: LoginEnvironment | null): Surroundings {
  if (login?.type !== "taken") return surroundings;
  const { env, envPolicy } = surroundings;
  const { set, unset } = login;
  const kept = Object.entries(env).filter(([name]) => !unset.includes(name));
  return {
    ...surroundings,
    env: { ...Object.fromEntries(kept), ...set },
    envPolicy: envPolicy && { ...envPolicy, exclude: [...envPolicy.exclude, ...unset] },
  };
}
