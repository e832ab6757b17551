import type { ExecBackend, StartParams } from "../../exec/exec-process.ts";
import { codeOf, ExecServerError } from "../../exec/exec-server-error.ts";
import { guardSecrets } from "../../exec/host-environment.ts";
import { commandParams, type RunOptions, type RunResult, run } from "../../exec/run-program.ts";
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

/** So much of a failed program's stderr stands in the error's text. */
const SHOWN_STDERR_CHARS = 500;

/** A program that ran and failed. */
export class CommandError extends ExecServerError {
  override readonly name = "CommandError";
  readonly exitCode: number;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;

  constructor(argv: readonly string[], result: RunResult) {
    const how = result.timedOut
      ? "was ended after its time"
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
): Promise<RunResult> {
  const argv = argvOf(command);
  const caller = new Error("called from here");
  const result = await explained(host, argv, options.cwd, caller, () => run(host.backend, argv, options));
  const isFailed = result.exitCode !== 0 || result.signal !== null || result.timedOut;
  if (isFailed && options.reject !== false) throw withCaller(new CommandError(argv, result), caller);
  return result;
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
  const caller = new Error("called from here");
  const process = await explained(host, argv, options.cwd, caller, () => backend.start(params));
  if (signal) {
    // Ended with its signal, like everything that takes one; a process that is gone already does not mind.
    const end = () => void process.terminate().catch(() => undefined);
    if (signal.aborted) end();
    else signal.addEventListener("abort", end, { once: true });
  }
  return new SpawnedProcess(process);
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

/** Says what was missing: servers answer the same to a missing program and to a missing directory. */
async function explained<T>(
  host: CommandHost,
  argv: string[],
  cwd: string | undefined,
  caller: Error,
  call: () => Promise<T>,
): Promise<T> {
  try {
    return await call();
  } catch (cause) {
    const code = codeOf(cause);
    // What is no failure of the call, such as the reason of an abort, is passed on as it is.
    if (code === null || !(cause instanceof Error)) throw cause;
    const isCwdMissing =
      cwd !== undefined && code === "ENOENT" && !(await host.exists(cwd).catch(() => true));
    const message = isCwdMissing
      ? `no such directory to start \`${argv[0]}\` in: ${cwd}`
      : code === "ENOENT"
        ? `no such program: \`${argv[0]}\``
        : code === "EACCES"
          ? `permission to run \`${argv[0]}\` was denied`
          : cause.message;
    const path = isCwdMissing ? cwd : argv[0]?.includes("/") ? argv[0] : undefined;
    const error = new ExecServerError(message, code, { argv, path, method: "process/start" }, { cause });
    throw withCaller(error, caller);
  }
}

/** The stack of an answer ends in the event loop; where it was asked for is what one looks for. */
function withCaller<E extends Error>(error: E, caller: Error): E {
  const asked = caller.stack?.split("\n").slice(2).join("\n") ?? "";
  error.stack = `${error.name}: ${error.message}\n${asked}`;
  return error;
}
