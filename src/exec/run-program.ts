import { type Clock, systemClock } from "../async/clock.ts";
import { TimeoutError } from "../async/deadline.ts";
import { collectOutput, type OutputText } from "./collect-output.ts";
import type {
  EnvPolicy,
  ExecBackend,
  ExecProcess,
  ExitReason,
  StartParams,
  TerminalSize,
} from "./exec-process.ts";
import { guardSecrets, HOST_ENVIRONMENT } from "./host-environment.ts";

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
  tty?: boolean;
  size?: TerminalSize;
  /** Ends the program and rejects with the signal's reason. */
  signal?: AbortSignal;
  processId?: string;
  clock?: Clock;
}

export interface RunResult extends OutputText {
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
 */
export async function run(
  backend: ExecBackend,
  argv: string[],
  options: RunOptions = {},
): Promise<RunResult> {
  const { timeoutMs, clock = systemClock } = options;
  options.signal?.throwIfAborted();
  const late = new AbortController();
  const timer = timeoutMs === undefined ? null : clock.after(timeoutMs, () => late.abort());
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
): Promise<RunResult> {
  const host = options.envPolicy === undefined ? guardSecrets(backend) : backend;
  const starting = host.start(commandParams(backend, argv, options));
  await using process = await startedInTime(starting, argv, options, late);
  const giveUp = () => {
    // The loop below sees the end; a server that is gone is seen there too.
    process.terminate({ type: "graceful", timeoutMs: ABORT_GRACE_MS }).catch(() => undefined);
  };
  const given = options.signal ? AbortSignal.any([options.signal, late]) : late;
  given.addEventListener("abort", giveUp, { once: true });
  if (given.aborted) giveUp();
  try {
    const { exit, ...output } = await collectOutput(process, options);
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

/** One that starts too late is ended as soon as it has. */
async function startedInTime(
  starting: Promise<ExecProcess>,
  argv: string[],
  { timeoutMs = 0, signal }: RunOptions,
  late: AbortSignal,
): Promise<ExecProcess> {
  const given = signal ? AbortSignal.any([signal, late]) : late;
  const ended = Promise.withResolvers<never>();
  const onAbort = () => {
    starting.then((process) => process[Symbol.asyncDispose]()).catch(() => undefined);
    ended.reject(signal?.aborted ? signal.reason : new TimeoutError(`\`${argv[0]}\` to start`, timeoutMs));
  };
  given.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([starting, ended.promise]);
  } finally {
    given.removeEventListener("abort", onAbort);
  }
}

let lastRun = 0;

/** A start whose id, directory and environment are chosen where nobody says. */
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
