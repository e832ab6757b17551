import { type ChildProcess, spawn } from "node:child_process";
import path from "node:path";

/** The script that Node runs as `procwire`, from the sources. */
export const ENTRY = path.join(import.meta.dirname, "cached-procwire.mjs");

export interface CliRun {
  child: ChildProcess;
  /** The output so far. */
  readonly stdout: string;
  readonly stderr: string;
  /** Resolves when the program has exited and its output is complete. A program that takes too long is killed. */
  ended: Promise<CliEnd>;
}

export interface CliEnd {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** Longer than any run takes on a busy machine; a longer run hangs. */
const DEFAULT_TIMEOUT_MS = 300_000;

/** Starts the CLI in an environment with only the variables that it needs. */
export function startCli(
  args: readonly string[],
  options: {
    cwd: string;
    env?: Record<string, string>;
    stdin?: string;
    /** Arguments that precede the command, such as those of `nsenter`. */
    under?: readonly string[];
    /** Timeout in milliseconds, for programs in an emulator. Default: `DEFAULT_TIMEOUT_MS`. */
    stuckMs?: number;
  },
): CliRun {
  const [program = "", ...words] = [...(options.under ?? []), process.execPath, ENTRY, ...args];
  const child = spawn(program, words, {
    cwd: options.cwd,
    env: {
      PATH: process.env.PATH ?? "",
      HOME: options.cwd,
      ...(process.env.NODE_OPTIONS ? { NODE_OPTIONS: process.env.NODE_OPTIONS } : {}),
      ...options.env,
    },
    stdio: [options.stdin === undefined ? "ignore" : "pipe", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
    stdout += chunk;
  });
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    stderr += chunk;
  });
  if (options.stdin !== undefined) child.stdin?.end(options.stdin);
  const stuck = setTimeout(() => child.kill("SIGKILL"), options.stuckMs ?? DEFAULT_TIMEOUT_MS);
  const ended = new Promise<CliEnd>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => {
      clearTimeout(stuck);
      resolve({ code, signal, stdout, stderr });
    });
  });
  return {
    child,
    get stdout() {
      return stdout;
    },
    get stderr() {
      return stderr;
    },
    ended,
  };
}

export function runCli(...args: Parameters<typeof startCli>): Promise<CliEnd> {
  return startCli(...args).ended;
}
