import { onAbort } from "../../async/abort.ts";
import { filterSecrets } from "../../exec/backend/secret-filter.ts";
import { withCallerStack } from "../../exec/call-error.ts";
import type { ExecBackend, StartParams } from "../../exec/exec-process.ts";
import { abortableStart } from "../../exec/run/abortable-start.ts";
import { decodeOutput } from "../../exec/run/collect-output.ts";
import { type RunOptions, type RunResult, runToExit, toStartParams } from "../../exec/run/run-program.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import { withStartErrors } from "../process/start-error.ts";
import { SpawnedProcess } from "./spawned-process.ts";

/** An executable by name or path, or an executable with arguments. No shell interprets it. */
export type CommandInput = string | readonly string[];

export interface EnvironmentRunOptions extends RunOptions {
  /** Rejects with a CommandError if the command fails or times out. Default: true. */
  reject?: boolean;
}

export interface SpawnOptions
  extends Pick<RunOptions, "cwd" | "env" | "envPolicy" | "tty" | "size" | "timeoutMs" | "signal" | "processId"> {
  /** Keeps stdin open for `write`. Default: true. */
  stdin?: boolean;
}

/** Maximum characters of stderr in the error message. */
const MAX_STDERR_CHARS = 500;

/** A command that ran and failed: `code` is `EXIT`, `SIGNAL` or `TIMEOUT`. */
export class CommandError extends ExecServerError {
  override readonly name = "CommandError";
  readonly exitCode: number;
  readonly signal: string | null;
  /** Always text, regardless of `encoding`. */
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;

  constructor(argv: readonly string[], result: RunResult) {
    const how = result.timedOut
      ? "timed out"
      : result.signal === null
        ? `failed with exit code ${result.exitCode}`
        : `was terminated by ${result.signal}`;
    const tail = result.stderr.trimEnd().slice(-MAX_STDERR_CHARS);
    super(
      `command ${how}: ${argv.join(" ")}${tail === "" ? "" : `\n${tail}`}`,
      result.timedOut ? "TIMEOUT" : result.signal === null ? "EXIT" : "SIGNAL",
      { argv },
    );
    this.exitCode = result.exitCode;
    this.signal = result.signal;
    this.stdout = result.stdout;
    this.stderr = result.stderr;
    this.timedOut = result.timedOut;
  }
}

/** The backend of an environment, and a check for missing files. */
export interface CommandHost {
  backend: ExecBackend;
  exists(path: string): Promise<boolean>;
}

export async function runCommand(
  host: CommandHost,
  command: CommandInput,
  options: EnvironmentRunOptions,
): Promise<RunResult | RunResult<Uint8Array>> {
  const argv = toArgv(command);
  const { cwd } = options;
  const caller = new Error("called from here");
  const attempt = { argv, cwd, exists: host.exists };
  const result = await withStartErrors(attempt, () => runToExit(host.backend, argv, options));
  const isFailed = result.exitCode !== 0 || result.signal !== null || result.timedOut;
  if (isFailed && options.reject !== false) throw withCallerStack(new CommandError(argv, decodeOutput(result)), caller);
  return options.encoding === "buffer" ? result : decodeOutput(result);
}

export async function spawnCommand(
  host: CommandHost,
  command: CommandInput,
  options: SpawnOptions,
): Promise<SpawnedProcess> {
  const argv = toArgv(command);
  const { stdin = true, signal, ...rest } = options;
  signal?.throwIfAborted();
  const params: StartParams = { ...toStartParams(host.backend, argv, rest), pipeStdin: stdin };
  const backend = options.envPolicy === undefined ? filterSecrets(host.backend) : host.backend;
  const attempt = { argv, cwd: options.cwd, exists: host.exists };
  const process = await withStartErrors(attempt, () => abortableStart(backend.start(params), signal));
  if (signal) {
    // An abort terminates the process; it has no effect after the exit.
    onAbort(signal, () => void process.terminate().catch(() => undefined));
  }
  return new SpawnedProcess(process, argv);
}

function toArgv(command: CommandInput): string[] {
  const argv = typeof command === "string" ? [command] : [...command];
  if (argv.length === 0 || argv[0] === "")
    throw new ExecServerError(
      "missing executable in command; expected its name or [executable, ...arguments]",
      "EINVAL",
      {
        argv,
      },
    );
  return argv;
}
