import { randomBytes, randomUUID } from "node:crypto";
import { type Clock, systemClock } from "../async/clock.ts";
import { KeyedQueue } from "../async/keyed-queue.ts";
import { TaskSet } from "../async/task-set.ts";
import { DEFAULT_ENV_POLICY, filterSecrets } from "../exec/backend/secret-filter.ts";
import { DEFAULT_TERMINAL_SIZE, type EnvPolicy, type ExecBackend, type TerminalSize } from "../exec/exec-process.ts";
import { checkOptions } from "../exec/options/option-schema.ts";
import { execCommandTool, executionContext } from "./calls/exec-command.ts";
import { handoffToUserTool } from "./calls/handoff-to-user.ts";
import { killSessionTool } from "./calls/kill-session.ts";
import { listSessionsTool } from "./calls/list-sessions.ts";
import { OUTPUT_SCHEMAS } from "./calls/output-schemas.ts";
import { readOutputTool } from "./calls/read-output.ts";
import { readScreenTool } from "./calls/read-screen.ts";
import { waitForTool } from "./calls/wait-for.ts";
import { writeStdinTool } from "./calls/write-stdin.ts";
import { errorAnswer } from "./calls/yield-call.ts";
import { DEFAULT_YIELD_LIMITS, type YieldLimits } from "./calls/yield-window.ts";
import { LOGIN_DEADLINE_MS, loginEnvironment } from "./login/login-environment-cache.ts";
import { NetworkAnswers } from "./network/network-questions.ts";
import { OneTimeNotice } from "./output/one-time-notice.ts";
import { type ArchiveLimits, DEFAULT_ARCHIVE_LIMITS } from "./output/output-archive.ts";
import { OutputArchiveStore } from "./output/output-archive-store.ts";
import { MAX_OUTPUT_TOKENS } from "./output/token-budget.ts";
import { ApprovalGate, type ApprovalPolicy } from "./policy/approval.ts";
import { neverAsk } from "./policy/never-ask.ts";
import { requireSandboxForNetwork, requireSupportedSandbox, type SandboxChoice } from "./policy/sandbox-choice.ts";
import { findExposure, noteWritableRoots, writableRootsOf } from "./policy/sandbox-exposure.ts";
import { absoluteShell } from "./policy/shell-choice.ts";
import type { ExecContext } from "./sessions/exec-context.ts";
import { EventFeed, type UnifiedExecEvent } from "./sessions/exec-events.ts";
import { ExecSessionManager } from "./sessions/exec-session-manager.ts";
import { DEFAULT_SESSION_LIMITS, ExecSessionTable, type SessionLimits } from "./sessions/exec-session-table.ts";
import { reopenNotice } from "./sessions/reopen-notice.ts";
import type { Tool } from "./tool.ts";
import { unifiedExecOptions } from "./unified-exec-options.ts";

export interface UnifiedExecOptions {
  /** Starts the processes, locally or on a remote host. */
  backend: ExecBackend;
  /** Default working directory of commands: an absolute path on the host of the processes. */
  cwd: string;
  /** Absolute path, or the name of a system shell. Default: /bin/bash. */
  shell?: string | undefined;
  /** Added to the environment of every command. */
  env?: Record<string, string>;
  /**
   * Selects the host variables that commands inherit. Default: all except apparent secrets. Null: none, so that `env` must
   * contain PATH.
   */
  envPolicy?: EnvPolicy | null;
  /** Default: `neverAsk`, commands stay in the sandbox. */
  approval?: ApprovalPolicy | undefined;
  /** Default: none. */
  sandbox?: SandboxChoice;
  /** Sandboxes that the host of the processes supports. Any other choice is an error. */
  hostSandboxes?: readonly string[];
  /** Keeps stdin open for commands without a terminal. Default: false, because many programs would wait for input. */
  pipeStdin?: boolean;
  terminalSize?: TerminalSize;
  /** Directory for output that exceeds the memory limit. Default: the system's temporary directory. */
  spillDirectory?: string;
  /** Limits of all calls: output in tokens (10,000), time of a login profile (10 s), yield windows, exec sessions, archives. */
  limits?: Partial<YieldLimits & SessionLimits & ArchiveLimits> & {
    /** Maximum output of any call, regardless of its request. Default: 10,000. */
    maxOutputTokens?: number;
    /** Maximum time of a login profile. Commands run without a slower profile. Default: 10,000 ms. */
    loginDeadlineMs?: number;
  };
  clock?: Clock;
  /** Prefix of process ids, for finding them in the process list of a server. Default: `exec-`. */
  processPrefix?: string | undefined;
  /** Returns how often the backend lost its session and opened a new one. Each time, the model receives one notice. */
  reopenCount?: (() => number) | undefined;
  /**
   * URL at which users reach the host with `procwire attach`. If set, results contain the attach command of a session that
   * waits for a secret, and the model has the tool handoff_to_user.
   */
  attachUrl?: string | null | undefined;
  /** Called with errors of background tasks, which belong to no call. */
  onError?: (error: unknown) => void;
}

export interface UnifiedExec extends AsyncDisposable {
  /** exec_command and write_stdin first, then the additions of procwire. */
  readonly tools: readonly Tool[];
  /** Returns all further events. */
  events(): AsyncIterableIterator<UnifiedExecEvent>;
  /** Ends every session and removes every file. Idempotent. */
  close(): Promise<void>;
}

/** Creates the command tools of a model on top of an ExecBackend. */
export function createUnifiedExec(options: UnifiedExecOptions): UnifiedExec {
  checkOptions("createUnifiedExec", options, unifiedExecOptions);
  const { sandbox = { type: "none" }, limits = {} } = options;
  requireSupportedSandbox(sandbox, options.hostSandboxes);
  requireSandboxForNetwork(options.approval, sandbox);
  noteWritableRoots(options.backend, sandbox);
  const clock = options.clock ?? systemClock;
  const sessions = new ExecSessionTable({ ...DEFAULT_SESSION_LIMITS, ...limits });
  const archives = new OutputArchiveStore(options.spillDirectory, { ...DEFAULT_ARCHIVE_LIMITS, ...limits });
  const feed = new EventFeed();
  const attachUrl = options.attachUrl ?? null;
  const tasks = new TaskSet(options.onError ?? (() => undefined));
  const manager = new ExecSessionManager({ attachUrl, clock, feed, archives, sessions, tasks });
  const { env = {}, envPolicy = DEFAULT_ENV_POLICY } = options;
  const backend = options.envPolicy === undefined ? filterSecrets(options.backend) : options.backend;
  const ended = Promise.withResolvers<void>();
  const gate = new ApprovalGate(options.approval ?? neverAsk());
  const newProcessId = () => `${options.processPrefix ?? "exec-"}${randomUUID()}`;
  const context: ExecContext = {
    backend,
    clock,
    cwd: options.cwd,
    shell: absoluteShell(options.shell ?? "/bin/bash"),
    login: (shell, choice) =>
      loginEnvironment(options.backend, options.reopenCount?.() ?? 0, choice, {
        backend,
        clock,
        tasks,
        shell,
        start: executionContext(context, options.cwd, choice),
        deadlineMs: limits.loginDeadlineMs ?? LOGIN_DEADLINE_MS,
        newProcessId,
      }),
    loginNotice: new OneTimeNotice(),
    startUpNotice: new OneTimeNotice(),
    hasWritableRoots: () => writableRootsOf(options.backend).length > 0,
    exposure: (workdir) =>
      findExposure(
        backend,
        writableRootsOf(options.backend),
        workdir,
        executionContext(context, workdir, { type: "none" }),
        newProcessId,
      ),
    env,
    envPolicy,
    pipeStdin: options.pipeStdin ?? false,
    terminalSize: options.terminalSize ?? DEFAULT_TERMINAL_SIZE,
    sandbox,
    tmpName: randomUUID(),
    ended: ended.promise,
    yieldLimits: { ...DEFAULT_YIELD_LIMITS, ...limits },
    maxOutputTokens: limits.maxOutputTokens ?? MAX_OUTPUT_TOKENS,
    gate,
    networkAnswers: new NetworkAnswers(gate, options.onError ?? (() => undefined)),
    sessions,
    archives,
    tasks,
    writes: new KeyedQueue(),
    openSession: (sessionId, process, command) => manager.open(sessionId, process, command),
    newProcessId,
    newChunkId: () => randomBytes(3).toString("hex"),
  };
  let closing: Promise<void> | null = null;
  const close = () => {
    closing ??= manager.close().then(() => {
      ended.resolve();
      feed.close();
      return archives.close();
    });
    return closing;
  };
  const addReopenNotice = reopenNotice(options.reopenCount ?? (() => 0), sessions);
  const outputSchemas: Readonly<Record<string, Tool["outputSchema"]>> = OUTPUT_SCHEMAS;
  const untilClosed = (tool: Tool): Tool => ({
    definition: tool.definition,
    outputSchema: outputSchemas[tool.definition.name],
    emitsOwnItems: tool.emitsOwnItems ?? false,
    call: async (args, call) => {
      if (manager.isClosed) return errorAnswer(`${tool.definition.name}: unified exec is closed`);
      const output = await tool.call(args, call);
      return call?.signal?.aborted ? output : addReopenNotice(output);
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
      ...(attachUrl === null ? [] : [handoffToUserTool(context)]),
    ].map(untilClosed),
    events: () => feed.subscribe(),
    close,
    [Symbol.asyncDispose]: close,
  };
}
