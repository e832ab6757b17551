import { type Clock, systemClock } from "../../async/clock.ts";
import { TimeoutError } from "../../async/deadline.ts";
import { guardSecrets, HOST_ENVIRONMENT } from "../backend/secret-filter.ts";
import { callError } from "../call-error.ts";
import type { EnvPolicy, ExecBackend, ExitReason, StartParams, TerminalSize } from "../exec-process.ts";
import { startUntil } from "./abortable-start.ts";
import { asText, type CollectedOutput, collectOutput } from "./collect-output.ts";

/** TERM comes this long before KILL when the caller gives up on a run. */
const ABORT_GRACE_MS = 2000;

export interface RunOptions {
  /** Default: where the backend's host runs. */
  cwd?: string;
  /** Set on top of what the policy lets through; `process.env` will do. */
  env?: Record<string, string | undefined>;
  /** Default: everything the host has but what looks like a secret. */
  envPolicy?: EnvPolicy | null;
  /** Written to stdin, which is closed then. Without it the program reads nothing. */
  input?: string | Uint8Array;
  /** Ends the program this long after the call; the result says `timedOut`. One not started by then rejects. */
  timeoutMs?: number;
  /** Per stream; what is beyond is left out and told by `truncated`. Default 16 MiB. */
  maxBytes?: number;
  /** `buffer` gives the output as bytes. Default: `utf8`, as text. */
  encoding?: "utf8" | "buffer" | undefined;
  tty?: boolean;
  size?: TerminalSize;
  /** Ends the program and rejects with the signal's reason. */
  signal?: AbortSignal;
  processId?: string;
  clock?: Clock;
}

export interface RunResult<Output = string> extends CollectedOutput<Output> {
  exitCode: number;
  /** `SIGKILL`, … or null when it ended by itself. */
  signal: string | null;
  reason: ExitReason;
  timedOut: boolean;
}

/**
 * Runs a program to its end, wherever the backend is.
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
  const result = await runToEnd(backend, argv, options);
  return options.encoding === "buffer" ? result : asText(result);
}

/** The same with bytes, whatever the encoding. */
export async function runToEnd(
  backend: ExecBackend,
  argv: string[],
  options: RunOptions,
): Promise<RunResult<Uint8Array>> {
  const { timeoutMs, clock = systemClock } = options;
  options.signal?.throwIfAborted();
  const late = new AbortController();
  const caller = new Error("called from here");
  const isLate = () => {
    const error = new TimeoutError(`\`${argv[0]}\` to start`, timeoutMs ?? 0);
    late.abort(callError(error, { method: "process/start", argv }, caller));
  };
  const timer = timeoutMs === undefined ? null : clock.after(timeoutMs, isLate);
  try {
    return await runUntil(backend, argv, options, late.signal);
  } finally {
    timer?.cancel();
  }
}

async function runUntil(
  backend: ExecBackend,
  argv: string[],
  options: RunOptions,
  late: AbortSignal,
): Promise<RunResult<Uint8Array>> {
  const host = options.envPolicy === undefined ? guardSecrets(backend) : backend;
  const given = options.signal ? AbortSignal.any([options.signal, late]) : late;
  await using process = await startUntil(host.start(commandParams(backend, argv, options)), given);
  const giveUp = () => {
    // The loop below sees the end; a server that is gone is seen there too.
    process.terminate({ type: "graceful", timeoutMs: ABORT_GRACE_MS }).catch(() => undefined);
  };
  given.addEventListener("abort", giveUp, { once: true });
  if (given.aborted) giveUp();
  try {
    const { input, maxBytes } = options;
    const { exit, ...output } = await collectOutput(process, { input, maxBytes });
    options.signal?.throwIfAborted();
    const { exitCode, signal } = exit;
    // Both this program and the host watch the time; whichever was first, it is the time that ended it.
    const reason = late.aborted && exit.reason === "terminated" ? "timeout" : exit.reason;
    return { ...output, exitCode, signal, reason, timedOut: reason === "timeout" };
  } catch (error) {
    options.signal?.throwIfAborted();
    throw error;
  } finally {
    given.removeEventListener("abort", giveUp);
  }
}

let lastRun = 0;

/** The parameters of a start, with defaults for id, directory and environment. */
export function commandParams(backend: ExecBackend, argv: string[], options: RunOptions): StartParams {
  const { env = {}, envPolicy = HOST_ENVIRONMENT, tty = false, size, timeoutMs, input } = options;
  return {
    // Unique among the runs of this program; a session belongs to one client, so that is enough.
    processId: options.processId ?? `run-${++lastRun}-${Math.random().toString(36).slice(2, 10)}`,
    argv,
    cwd: options.cwd ?? backend.defaultCwd ?? hostCwd(),
    env: definedOnly(env),
    envPolicy,
    tty,
    size,
    pipeStdin: input !== undefined,
    timeoutMs,
  };
}

function definedOnly(env: Record<string, string | undefined>): Record<string, string> {
  const defined: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) if (value !== undefined) defined[name] = value;
  return defined;
}

/** A backend that names no directory of its own runs where this program runs. */
function hostCwd(): string {
  return typeof process === "undefined" ? "/" : process.cwd();
}
