import { posix } from "node:path";
import type { ExecProcess } from "../../exec/exec-process.ts";
import { messageOf } from "../../protocol/message-of.ts";
import type { ApprovalRequest } from "../policy/approval.ts";
import { describeCommand } from "../policy/approval.ts";
import { realWorkdir, type Workdir } from "../policy/real-workdir.ts";
import type { SandboxChoice } from "../policy/sandbox-attempt.ts";
import { sandboxIntent } from "../policy/sandbox-attempt.ts";
import { chooseShell } from "../policy/shell-choice.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession, SessionCommand } from "../sessions/exec-session.ts";
import type { Tool, ToolCallContext, ToolOutput } from "../tool.ts";
import type { ExecCommandArguments } from "./definitions.ts";
import { definitions, execCommandSchema } from "./definitions.ts";
import { parseArguments } from "./tool-schema.ts";
import { answer, refusal, waitWindow } from "./window-call.ts";
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
    definition: definitions.execCommand,
    tellsItself: true,
    async call(args, call = {}) {
      const parsed = parseArguments(execCommandSchema, args);
      if (parsed.type === "invalid") return refusal(`exec_command: ${parsed.message}`);
      return run(context, parsed.value, call);
    },
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
  const judged = await requestFor(context, args, escalates ? "unsandboxed" : "command", choice);
  if ("ok" in judged) return judged;
  const { request } = judged;
  const permission = await context.gate.permit(request, call);
  if (permission.type === "refused") return notStarted("declined", request, permission.reason);
  let attempted = await attempt(context, invocation, judged, choice, 1);
  if (attempted.type === "started" && wasDenied(attempted.session)) {
    // The first attempt may have put links where directories were.
    const retry = await requestFor(context, args, "retry", { type: "none" });
    if ("ok" in retry) return retry;
    const again = await context.gate.permit(retry.request, call);
    if (again.type === "allowed") attempted = await attempt(context, invocation, retry, { type: "none" }, 2);
  }
  if (attempted.type === "notStarted") return notStarted("failed", request, attempted.message);
  const { session } = attempted;
  return answer(context, session, {
    sinceMs: session.startedAtMs,
    maxOutputTokens: args.max_output_tokens,
    signal: call.signal,
  });
}

/** No event tells of it, so the answer does. */
function notStarted(how: "declined" | "failed", { argv }: ApprovalRequest, reason: string): ToolOutput {
  const text = `exec_command ${how === "declined" ? "refused" : "failed"}: ${reason}`;
  return { ok: false, text, structured: { not_started: how, argv, reason } };
}

/** A request as it is put to whoever decides on it, and the directory that was looked at for it. */
interface Judged {
  request: ApprovalRequest;
  workdir: Workdir;
}

/** What would be started, for whoever decides on it; or the answer to a call that cannot be carried out. */
async function requestFor(
  context: ExecContext,
  args: ExecCommandArguments,
  kind: ApprovalRequest["kind"],
  choice: SandboxChoice,
): Promise<Judged | ToolOutput> {
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
  const request: ApprovalRequest = {
    kind,
    ...describeCommand(args.cmd, shell, { login: args.login ?? true, prefixRule: args.prefix_rule }),
    tty: args.tty ?? false,
    workdir: workdir.path,
    sandbox: choice.type,
    ...(args.justification !== undefined && { justification: args.justification }),
  };
  return problem === null ? { request, workdir } : notStarted("failed", request, problem);
}

/** The walls that were put up here were in the way. */
function wasDenied({ end, command }: ExecSession): boolean {
  return command.sandbox !== "none" && end?.type === "exited" && end.sandboxDenied;
}

type Attempt = { type: "started"; session: ExecSession } | { type: "notStarted"; message: string };

/** Starts what was permitted, behind the chosen walls, and waits out its window. */
async function attempt(
  context: ExecContext,
  { sessionId, args, call }: Invocation,
  { request: { cmd, argv, tty }, workdir }: Judged,
  choice: SandboxChoice,
  number: 1 | 2,
): Promise<Attempt> {
  const command = { cmd, argv: [...argv], cwd: workdir.path, tty, sandbox: choice.type, attempt: number };
  const started = await start(context, command, workdir, choice);
  if (typeof started === "string") return { type: "notStarted", message: started };
  const session = await context.openSession(sessionId, started, command);
  await waitWindow(context, session, execWindowMs(args.yield_time_ms, context.yieldLimits), call);
  return { type: "started", session };
}

/** The process, or why there is none, in the words of whoever could not start it. */
async function start(
  context: ExecContext,
  { argv, tty }: SessionCommand,
  workdir: Workdir,
  choice: SandboxChoice,
): Promise<ExecProcess | string> {
  try {
    return await context.backend.start({
      processId: context.newProcessId(),
      argv: [...argv],
      cwd: workdir.path,
      cwdIdentity: workdir.identity,
      env: { ...ADDED_ENVIRONMENT, ...context.env },
      envPolicy: context.envPolicy,
      tty,
      ...(tty ? { size: context.terminalSize } : { pipeStdin: context.pipeStdin }),
      mode: "prepared",
      sandbox: sandboxIntent(choice),
      sandboxScope: context,
    });
  } catch (error) {
    return messageOf(error);
  }
}
