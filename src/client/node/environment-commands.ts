import { whenAborted } from "../../async/abort.ts";
import { guardSecrets } from "../../exec/backend/secret-filter.ts";
import { withCaller } from "../../exec/call-error.ts";
import type { ExecBackend, StartParams } from "../../exec/exec-process.ts";
import { startUntil } from "../../exec/run/abortable-start.ts";
import { asText } from "../../exec/run/collect-output.ts";
import { commandParams, type RunOptions, type RunResult, runToEnd } from "../../exec/run/run-program.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import { explainingStart } from "../process/start-error.ts";
import { SpawnedProcess } from "./spawned-process.ts";

/** A program by its name or path, or a program with its arguments. No shell reads it. */
export type Command = string | readonly string[];

export interface EnvironmentRunOptions extends RunOptions {
  /** Rejects with a CommandError when the program fails or its time is over. Default: true. */
  reject?: boolean;
}

export interface SpawnOptions
  extends Pick<
    RunOptions,
    "cwd" | "env" | "envPolicy" | "tty" | "size" | "timeoutMs" | "signal" | "processId"
  > {
  /** Keeps stdin open for `write`. Default: true. */
  stdin?: boolean;
}

/** How much of a failed program's stderr the error's text has. */
const SHOWN_STDERR_CHARS = 500;

/** A program that ran and failed: `code` is `EXIT`, `SIGNAL` or `TIMEOUT`. */
export class CommandError extends ExecServerError {
  override readonly name = "CommandError";
  readonly exitCode: number;
  readonly signal: string | null;
  /** As text, whatever the encoding of the run. */
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;

  constructor(argv: readonly string[], result: RunResult) {
    const how = result.timedOut
      ? "was ended because its time was up"
      : result.signal === null
        ? `failed with exit code ${result.exitCode}`
        : `was ended by ${result.signal}`;
    const tail = result.stderr.trimEnd().slice(-SHOWN_STDERR_CHARS);
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

/** What an environment offers to look at when a program could not be started. */
export interface CommandHost {
  backend: ExecBackend;
  exists(path: string): Promise<boolean>;
}

export async function runCommand(
  host: CommandHost,
  command: Command,
  options: EnvironmentRunOptions,
): Promise<RunResult | RunResult<Uint8Array>> {
  const argv = argvOf(command);
  const { cwd } = options;
  const caller = new Error("called from here");
  const attempt = { argv, cwd, exists: host.exists };
  const result = await explainingStart(attempt, () => runToEnd(host.backend, argv, options));
  const isFailed = result.exitCode !== 0 || result.signal !== null || result.timedOut;
  if (isFailed && options.reject !== false) throw withCaller(new CommandError(argv, asText(result)), caller);
  return options.encoding === "buffer" ? result : asText(result);
}

export async function spawnCommand(
  host: CommandHost,
  command: Command,
  options: SpawnOptions,
): Promise<SpawnedProcess> {
  const argv = argvOf(command);
  const { stdin = true, signal, ...rest } = options;
  signal?.throwIfAborted();
  const params: StartParams = { ...commandParams(host.backend, argv, rest), pipeStdin: stdin };
  const backend = options.envPolicy === undefined ? guardSecrets(host.backend) : host.backend;
  const attempt = { argv, cwd: options.cwd, exists: host.exists };
  const process = await explainingStart(attempt, () => startUntil(backend.start(params), signal));
  if (signal) {
    // An abort ends the process, as it ends every call; one that has exited is not affected.
    whenAborted(signal, () => void process.terminate().catch(() => undefined));
  }
  return new SpawnedProcess(process, argv);
}

function argvOf(command: Command): string[] {
  const argv = typeof command === "string" ? [command] : [...command];
  if (argv.length === 0 || argv[0] === "")
    throw new ExecServerError(
      "a command needs a program; expected its name or [program, ...arguments]",
      "EINVAL",
      {
        argv,
      },
    );
  return argv;
}
