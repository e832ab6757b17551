import { collectOutput, type OutputText } from "./collect-output.ts";
import type { EnvPolicy, ExecBackend, ExitReason, StartParams, TerminalSize } from "./exec-process.ts";
import { guardSecrets, HOST_ENVIRONMENT } from "./host-environment.ts";

/** TERM comes this long before KILL when the caller gives up on a run. */
const ABORT_GRACE_MS = 2000;

export interface RunOptions {
  /** Default: where the backend's host runs. */
  cwd?: string;
  /** Set on top of what the policy lets through. */
  env?: Record<string, string>;
  /** Default: everything the host has but what looks like a secret. */
  envPolicy?: EnvPolicy | null;
  /** Written to stdin, which is closed then. Without it the program reads nothing. */
  input?: string | Uint8Array;
  /** Ends the program after this long; the result says `timedOut`. */
  timeoutMs?: number;
  /** Per stream; what is beyond is left out and told by `truncated`. Default 16 MiB. */
  maxBytes?: number;
  tty?: boolean;
  size?: TerminalSize;
  /** Ends the program and rejects with the signal's reason. */
  signal?: AbortSignal;
  processId?: string;
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
  options.signal?.throwIfAborted();
  const host = options.envPolicy === undefined ? guardSecrets(backend) : backend;
  await using process = await host.start(startParams(backend, argv, options));
  const onAbort = () => {
    // The loop below sees the end; a server that is gone is seen there too.
    process.terminate({ type: "graceful", timeoutMs: ABORT_GRACE_MS }).catch(() => undefined);
  };
  options.signal?.addEventListener("abort", onAbort, { once: true });
  try {
    const { exit, ...output } = await collectOutput(process, options);
    options.signal?.throwIfAborted();
    const { exitCode, signal, reason } = exit;
    return { ...output, exitCode, signal, reason, timedOut: reason === "timeout" };
  } finally {
    options.signal?.removeEventListener("abort", onAbort);
  }
}

let lastRun = 0;

function startParams(backend: ExecBackend, argv: string[], options: RunOptions): StartParams {
  const { env = {}, envPolicy = HOST_ENVIRONMENT, tty = false, size, timeoutMs, input } = options;
  return {
    // Unique among the runs of this program; a session belongs to one client, so that is enough.
    processId: options.processId ?? `run-${++lastRun}-${Math.random().toString(36).slice(2, 10)}`,
    argv,
    cwd: options.cwd ?? backend.defaultCwd ?? hostCwd(),
    env,
    envPolicy,
    tty,
    size,
    pipeStdin: input !== undefined,
    timeoutMs,
  };
}

/** A backend that names no directory of its own runs where this program runs. */
function hostCwd(): string {
  return typeof process === "undefined" ? "/" : process.cwd();
}
