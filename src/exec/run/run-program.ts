import { type Clock, systemClock } from "../../async/clock.ts";
import { TimeoutError } from "../../async/deadline.ts";
import { DEFAULT_ENV_POLICY, filterSecrets } from "../backend/secret-filter.ts";
import { toCallError } from "../call-error.ts";
import type { EnvPolicy, ExecBackend, ExitReason, StartParams, TerminalSize } from "../exec-process.ts";
import type { InputData } from "../options/input-bytes.ts";
import { checkArgument, checkOptions } from "../options/option-schema.ts";
import { backendKind, runArgvKind, runOptions } from "../options/process-options.ts";
import { abortableStart } from "./abortable-start.ts";
import { type CollectedOutput, collectOutput, decodeOutput } from "./collect-output.ts";

/** Grace period between SIGTERM and SIGKILL after the caller aborts a run. */
const ABORT_GRACE_MS = 2000;

export interface RunOptions {
  /** Default: the backend's default directory. */
  cwd?: string;
  /** Variables set on top of the policy; `process.env` is accepted. */
  env?: Record<string, string | undefined>;
  /** Default: all variables of the host, except names and values that look like secrets. */
  envPolicy?: EnvPolicy | null;
  /** Written to stdin, which is then closed. Without it, stdin is empty. */
  input?: InputData;
  /**
   * Terminates the command this long after the call; the result has `timedOut`. If it has not started by then, the
   * call rejects.
   */
  timeoutMs?: number;
  /** Maximum bytes per stream; the rest is discarded and sets `truncated`. Default 16 MiB. */
  maxBytes?: number;
  /** `buffer` returns the output as bytes. Default: `utf8`, as text. */
  encoding?: "utf8" | "buffer" | undefined;
  tty?: boolean;
  size?: TerminalSize;
  /** Terminates the command and rejects with the signal's reason. */
  signal?: AbortSignal;
  processId?: string;
  /** Name of the process, unique among the live processes of the principal: `[a-z0-9][a-z0-9._-]{0,62}`. */
  name?: string | undefined;
  /** Labels of the process, for lists and filters. At most 32. */
  labels?: Record<string, string> | undefined;
  clock?: Clock;
}

export interface RunResult<Output = string> extends CollectedOutput<Output> {
  exitCode: number;
  /** Signal name such as `SIGKILL`; null if no signal ended the command. */
  signal: string | null;
  reason: ExitReason;
  timedOut: boolean;
}

/**
 * Runs a command until it exits, on any backend.
 *
 * @example
 * const { stdout, exitCode } = await run(backend, ["git", "status", "--short"], { cwd: "/src" });
 * const { stdout: image } = await run(backend, ["cat", "a.png"], { encoding: "buffer" });
 */
export function run(
  backend: ExecBackend,
  argv: string[],
  options: RunOptions & { encoding: "buffer" },
): Promise<RunResult<Uint8Array>>;
export function run(
  backend: ExecBackend,
  argv: string[],
  options?: RunOptions & { encoding?: "utf8" | undefined },
): Promise<RunResult>;
export async function run(
  backend: ExecBackend,
  argv: string[],
  options: RunOptions = {},
): Promise<RunResult | RunResult<Uint8Array>> {
  checkArgument("run", "backend", backend, backendKind);
  checkArgument("run", "argv", argv, runArgvKind);
  checkOptions("run", options, runOptions);
  const result = await runToExit(backend, argv, options);
  return options.encoding === "buffer" ? result : decodeOutput(result);
}

/** Like `run`, but always returns bytes. */
export async function runToExit(
  backend: ExecBackend,
  argv: string[],
  options: RunOptions,
): Promise<RunResult<Uint8Array>> {
  const { timeoutMs, clock = systemClock } = options;
  options.signal?.throwIfAborted();
  const timeout = new AbortController();
  const caller = new Error("called from here");
  const onTimeout = () => {
    const error = new TimeoutError(`\`${argv[0]}\` to start`, timeoutMs ?? 0);
    timeout.abort(toCallError(error, { method: "process/start", argv }, caller));
  };
  const timer = timeoutMs === undefined ? null : clock.after(timeoutMs, onTimeout);
  try {
    return await runUntil(backend, argv, options, timeout.signal);
  } finally {
    timer?.cancel();
  }
}

async function runUntil(
  backend: ExecBackend,
  argv: string[],
  options: RunOptions,
  timeout: AbortSignal,
): Promise<RunResult<Uint8Array>> {
  const host = options.envPolicy === undefined ? filterSecrets(backend) : backend;
  const ending = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
  await using process = await abortableStart(host.start(toStartParams(backend, argv, options)), ending);
  const terminateGracefully = () => {
    // The collection below observes the exit, and also a lost server.
    process.terminate({ type: "graceful", timeoutMs: ABORT_GRACE_MS }).catch(() => undefined);
  };
  ending.addEventListener("abort", terminateGracefully);
  if (ending.aborted) terminateGracefully();
  try {
    const { input, maxBytes } = options;
    const { exit, ...output } = await collectOutput(process, { input, maxBytes });
    options.signal?.throwIfAborted();
    const { exitCode, signal } = exit;
    // Client and host both enforce the timeout; the reason is the same whichever was first.
    const reason = timeout.aborted && exit.reason === "terminated" ? "timeout" : exit.reason;
    return { ...output, exitCode, signal, reason, timedOut: reason === "timeout" };
  } catch (error) {
    options.signal?.throwIfAborted();
    throw error;
  } finally {
    ending.removeEventListener("abort", terminateGracefully);
  }
}

let lastRun = 0;

/** Builds the start parameters with defaults for id, directory and environment. */
export function toStartParams(backend: ExecBackend, argv: string[], options: RunOptions): StartParams {
  const { env = {}, envPolicy = DEFAULT_ENV_POLICY, tty = false, size, timeoutMs, input, name, labels } = options;
  return {
    // Unique among the runs of this process; a session belongs to one client, so that is enough.
    processId: options.processId ?? `run-${++lastRun}-${Math.random().toString(36).slice(2, 10)}`,
    argv,
    cwd: options.cwd ?? backend.defaultCwd ?? currentDirectory(),
    env: omitUnsetVariables(env),
    envPolicy: envPolicy ?? undefined,
    tty,
    size,
    pipeStdin: input !== undefined,
    timeoutMs,
    name,
    labels,
  };
}

/** Returns the variables that have a value. */
export function omitUnsetVariables(env: Record<string, string | undefined>): Record<string, string> {
  const defined: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) if (value !== undefined) defined[name] = value;
  return defined;
}

/** Default directory for a backend without one: the current directory of this process. */
function currentDirectory(): string {
  return typeof process === "undefined" ? "/" : process.cwd();
}
