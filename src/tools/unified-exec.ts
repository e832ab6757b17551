import { randomBytes, randomUUID } from "node:crypto";
import type { Clock } from "../async/clock.ts";
import { systemClock } from "../async/clock.ts";
import { Lanes } from "../async/keyed-queue.ts";
import { TaskSet } from "../async/task-set.ts";
import { guardSecrets, HOST_ENVIRONMENT } from "../exec/backend/secret-filter.ts";
import type { EnvPolicy, ExecBackend, TerminalSize } from "../exec/exec-process.ts";
import { DEFAULT_TERMINAL_SIZE } from "../exec/exec-process.ts";
import { execCommandTool, startIn } from "./calls/exec-command.ts";
import { handOverTool } from "./calls/handoff-to-user.ts";
import { killSessionTool } from "./calls/kill-session.ts";
import { listSessionsTool } from "./calls/list-sessions.ts";
import { OUTPUT_SCHEMAS } from "./calls/output-schemas.ts";
import { readOutputTool } from "./calls/read-output.ts";
import { readScreenTool } from "./calls/read-screen.ts";
import { waitForTool } from "./calls/wait-for.ts";
import { writeStdinTool } from "./calls/write-stdin.ts";
import { refusal } from "./calls/yield-call.ts";
import type { YieldLimits } from "./calls/yield-window.ts";
import { DEFAULT_YIELD_LIMITS } from "./calls/yield-window.ts";
import { LOGIN_DEADLINE_MS, loginEnvironment } from "./login/login-environments.ts";
import { Notice } from "./output/one-time-notice.ts";
import type { ArchiveLimits } from "./output/output-archive.ts";
import { DEFAULT_ARCHIVE_LIMITS } from "./output/output-archive.ts";
import { ArchiveShelf } from "./output/output-archive-store.ts";
import { MAX_OUTPUT_TOKENS } from "./output/token-budget.ts";
import type { ApprovalPolicy } from "./policy/approval.ts";
import { ApprovalGate } from "./policy/approval.ts";
import { neverAsk } from "./policy/never-ask.ts";
import type { SandboxChoice } from "./policy/sandbox-choice.ts";
import { checkSandbox } from "./policy/sandbox-choice.ts";
import { absoluteShell } from "./policy/shell-choice.ts";
import type { ExecContext } from "./sessions/exec-context.ts";
import type { UnifiedExecEvent } from "./sessions/exec-events.ts";
import { EventFeed } from "./sessions/exec-events.ts";
import { SessionKeeper } from "./sessions/exec-session-manager.ts";
import type { SessionLimits } from "./sessions/exec-session-table.ts";
import { DEFAULT_SESSION_LIMITS, SessionTable } from "./sessions/exec-session-table.ts";
import { RenewalNotice } from "./sessions/reopen-notice.ts";
import type { Tool } from "./tool.ts";

export interface UnifiedExecOptions {
  /** Where processes run: here, or far away. */
  backend: ExecBackend;
  /** The directory commands run in unless they name another: absolute, on the host of the processes. */
  cwd: string;
  /** Absolute, or the name of one of the system's own. Default: /bin/bash. */
  shell?: string | undefined;
  /** Added to every command's environment. */
  env?: Record<string, string>;
  /**
   * What commands get of the host's own environment. Default: everything but what looks like a secret. Null: nothing, so `env` has to bring a PATH.
   */
  envPolicy?: EnvPolicy | null;
  /** Default: nobody is asked, and commands stay inside the sandbox, if there is one. */
  approval?: ApprovalPolicy | undefined;
  /** Default: none. */
  sandbox?: SandboxChoice;
  /** The sandboxes the host of the processes says it has. A choice it does not have is an error. */
  hostSandboxes?: readonly string[];
  /** Keeps stdin of commands without a terminal open. Off by default: many programs then wait for input. */
  pipeStdin?: boolean;
  terminalSize?: TerminalSize;
  /** Where output that is too long for memory goes. Default: the system's temporary directory. */
  spillDirectory?: string;
  limits?: Partial<YieldLimits & SessionLimits & ArchiveLimits> & {
    /** No call gets more output than this, whatever it asks for. Default: 10,000. */
    maxOutputTokens?: number;
    /** How long the profile of a login shell may take; commands run without it when it takes longer. Default: 10,000 ms. */
    loginDeadlineMs?: number;
  };
  clock?: Clock;
  /** What the ids of its processes begin with, so that others find them in a server's list. Default: `exec-`. */
  processPrefix?: string | undefined;
  /** How often the backend has lost its session and opened another; the model is told once each time. */
  renewals?: (() => number) | undefined;
  /**
   * The address by which a person reaches the same host with `procwire attach`. With it the model is told how a session that
   * waits for a secret can be attached to, and has the tool hand_over.
   */
  attachUrl?: string | null | undefined;
  /** Called with failures in the background, which belong to no call. */
  onError?: (error: unknown) => void;
}

export interface UnifiedExec extends AsyncDisposable {
  /** exec_command and write_stdin first, then procwire's own. */
  readonly tools: readonly Tool[];
  /** Everything that happens from now on. */
  events(): AsyncIterableIterator<UnifiedExecEvent>;
  /** Ends every session and removes every file. Idempotent. */
  close(): Promise<void>;
}

/** The tools a model works with, on top of anything that can start processes. */
export function createUnifiedExec(options: UnifiedExecOptions): UnifiedExec {
  const { sandbox = { type: "none" }, limits = {} } = options;
  checkSandbox(sandbox, options.hostSandboxes);
  const clock = options.clock ?? systemClock;
  const sessions = new SessionTable({ ...DEFAULT_SESSION_LIMITS, ...limits });
  const shelf = new ArchiveShelf(options.spillDirectory, { ...DEFAULT_ARCHIVE_LIMITS, ...limits });
  const feed = new EventFeed();
  const attachUrl = options.attachUrl ?? null;
  const tasks = new TaskSet(options.onError ?? (() => undefined));
  const keeper = new SessionKeeper({ attachUrl, clock, feed, shelf, sessions, tasks });
  const { env = {}, envPolicy = HOST_ENVIRONMENT } = options;
  const backend = options.envPolicy === undefined ? guardSecrets(options.backend) : options.backend;
  const ended = Promise.withResolvers<void>();
  const newProcessId = () => `${options.processPrefix ?? "exec-"}${randomUUID()}`;
  const context: ExecContext = {
    backend,
    clock,
    cwd: options.cwd,
    shell: absoluteShell(options.shell ?? "/bin/bash"),
    login: (shell, choice) =>
      loginEnvironment(options.backend, options.renewals?.() ?? 0, choice, {
        backend,
        clock,
        tasks,
        shell,
        start: startIn(context, options.cwd, choice),
        deadlineMs: limits.loginDeadlineMs ?? LOGIN_DEADLINE_MS,
        newProcessId,
      }),
    loginNotice: new Notice(),
    env,
    envPolicy,
    pipeStdin: options.pipeStdin ?? false,
    terminalSize: options.terminalSize ?? DEFAULT_TERMINAL_SIZE,
    sandbox,
    tmpName: randomUUID(),
    ended: ended.promise,
    yieldLimits: { ...DEFAULT_YIELD_LIMITS, ...limits },
    maxOutputTokens: limits.maxOutputTokens ?? MAX_OUTPUT_TOKENS,
    gate: new ApprovalGate(options.approval ?? neverAsk()),
    sessions,
    shelf,
    tasks,
    writes: new Lanes(),
    openSession: (sessionId, process, command) => keeper.open(sessionId, process, command),
    newProcessId,
    newChunkId: () => randomBytes(3).toString("hex"),
  };
  let closing: Promise<void> | null = null;
  const close = () => {
    closing ??= keeper.close().then(() => {
      ended.resolve();
      feed.close();
      return shelf.close();
    });
    return closing;
  };
  const renewed = new RenewalNotice(options.renewals, sessions);
  const outputSchemas: Readonly<Record<string, Tool["outputSchema"]>> = OUTPUT_SCHEMAS;
  const untilClosed = (tool: Tool): Tool => ({
    definition: tool.definition,
    outputSchema: outputSchemas[tool.definition.name],
    tellsItself: tool.tellsItself ?? false,
    call: async (args, call) => {
      if (keeper.closed) return refusal(`${tool.definition.name}: unified exec is closed`);
      const output = await tool.call(args, call);
      return call?.signal?.aborted ? output : renewed.addTo(output);
    },
  });
  return {
    tools: [
      execCommandTool(context),
      writeStdinTool(context),
      waitForTool(context),
      killSessionTool(context),
      listSessionsTool(context),
      readOutputTool(context),
      readScreenTool(context),
      ...(attachUrl === null ? [] : [handOverTool(context)]),
    ].map(untilClosed),
    events: () => feed.subscribe(),
    close,
    [Symbol.asyncDispose]: close,
  };
}
