import { onAbort } from "../../async/abort.ts";
import { shareInstances } from "../../base/shared-class.ts";
import { filterSecrets } from "../../exec/backend/secret-filter.ts";
import { withCallerStack } from "../../exec/call-error.ts";
import type { ExecBackend, ExecProcess, Lifetime, StartParams } from "../../exec/exec-process.ts";
import { checkArgument, checkOptions } from "../../exec/options/option-schema.ts";
import { abortableStart } from "../../exec/run/abortable-start.ts";
import { decodeOutput } from "../../exec/run/collect-output.ts";
import { type RunOptions, type RunResult, runToExit, toStartParams } from "../../exec/run/run-program.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import { withStartErrors } from "../process/start-error.ts";
import { commandKind, environmentRunOptions, spawnOptions } from "./node-options.ts";
import { SpawnedProcess } from "./spawned-process.ts";

/** An executable by name or path, or an executable with arguments. No shell interprets it. */
export type CommandInput = string | readonly string[];

export interface EnvironmentRunOptions extends RunOptions {
  /** Rejects with a CommandError if the command fails or times out. Default: true. */
  reject?: boolean;
}

export interface SpawnOptions
  extends Pick<
    RunOptions,
    "cwd" | "env" | "envPolicy" | "tty" | "size" | "timeoutMs" | "signal" | "processId" | "name" | "labels"
  > {
  /** Keeps stdin open for `write`. Default: true. */
  stdin?: boolean;
  /**
   * How long the process may live: until the environment is closed and its session ends (`session`), until the server
   * exits (`server`), or beyond the server (`persistent`). `server` and `persistent` require a procwire server; attach to
   * the process again by its `handle`. Default: `session`.
   */
  lifetime?: Lifetime;
}

/** Maximum characters of stderr in the error message. */
const MAX_STDERR_CHARS = 500;

/** A command that ran and failed: `code` is `EXIT`, `SIGNAL` or `TIMEOUT`. */
export class CommandError extends ExecServerError {
  static {
    shareInstances(CommandError, "procwire.CommandError");
  }

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
  checkArgument("run", "command", command, commandKind);
  checkOptions("run", options, environmentRunOptions);
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
  checkArgument("spawn", "command", command, commandKind);
  checkOptions("spawn", options, spawnOptions);
  const argv = toArgv(command);
  const { stdin = true, lifetime, signal, ...rest } = options;
  signal?.throwIfAborted();
  const params: StartParams = { ...toStartParams(host.backend, argv, rest), pipeStdin: stdin, lifetime };
  const backend = options.envPolicy === undefined ? filterSecrets(host.backend) : host.backend;
  const attempt = { argv, cwd: options.cwd, exists: host.exists };
  const process = await withStartErrors(attempt, () => abortableStart(backend.start(params), signal));
  if (signal) {
    const stopListening = onAbort(signal, () => void process.terminate().catch(() => undefined));
    // The signal may outlive many processes, so its listener must not stay after the process has ended.
    void whenEnded(process).then(stopListening);
  }
  return new SpawnedProcess(process, argv);
}

/** Resolves when the process has ended or can no longer be tracked. */
async function whenEnded(process: ExecProcess): Promise<void> {
  try {
    for await (const _event of process.events());
  } catch {
    // The backend no longer reports events, so an abort could not terminate the process either.
  }
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
