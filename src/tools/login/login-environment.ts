import { randomUUID } from "node:crypto";
import type { Clock } from "../../async/clock.ts";
import type { TaskSet } from "../../async/task-set.ts";
import { errorMessage } from "../../base/error-message.ts";
import { looksSecret } from "../../exec/backend/secret-filter.ts";
import type { EnvPolicy, ExecBackend, ExecProcess, StartParams } from "../../exec/exec-process.ts";

/** Changes of a login shell's profile to the environment, or why they are unknown. */
export type LoginEnvironment =
  | {
      type: "taken";
      /** Variables that the profile sets or changes, except variables that look like secrets. */
      set: Readonly<Record<string, string>>;
      /** Variables that the profile removes. */
      unset: readonly string[];
    }
  /** The profile exceeded its deadline. Every login shell would hang, so commands run without the profile. */
  | { type: "late"; reason: string }
  /** The shell exited without printing its environment. Commands run without the profile. */
  | { type: "failed"; reason: string }
  /** The shell could not be started or the host was lost. The next command tries again. */
  | { type: "unreachable"; reason: string };

export interface LoginProbe {
  backend: ExecBackend;
  clock: Clock;
  /** Owns the background termination of the probe. */
  tasks: TaskSet;
  /** Absolute path. */
  shell: string;
  /** Start parameters of a command, including its sandbox. The profile runs under the same conditions. */
  start: Pick<StartParams, "cwd" | "env" | "envPolicy" | "sandbox" | "sandboxScope">;
  deadlineMs: number;
  newProcessId: () => string;
}

/** Maximum output of the probe. An environment has only some kilobytes. */
const MAX_PROBE_BYTES = 4 * 1024 * 1024;

/**
 * Starts a login shell that prints its environment, and compares it with the environment before the profile. Never
 * rejects: failures are part of the result.
 */
export async function captureLoginEnvironment(probe: LoginProbe): Promise<LoginEnvironment> {
  const { clock, deadlineMs, shell, tasks } = probe;
  const abort = new AbortController();
  const late = Promise.withResolvers<LoginEnvironment>();
  const deadline = clock.after(deadlineMs, () => {
    const reason = `the profile of the login shell ${shell} did not end within ${deadlineMs / 1000} s`;
    late.resolve({ type: "late", reason });
    abort.abort();
  });
  const capturing = capture(probe, abort.signal);
  tasks.run(async () => {
    await capturing;
  });
  try {
    return await Promise.race([capturing, late.promise]);
  } finally {
    deadline.cancel();
  }
}

async function capture(probe: LoginProbe, signal: AbortSignal): Promise<LoginEnvironment> {
  const delimiter = randomUUID();
  let process: ExecProcess;
  try {
    process = await probe.backend.start({
      ...probe.start,
      processId: probe.newProcessId(),
      argv: ["/bin/sh", "-c", PROBE_SCRIPT, "sh", delimiter, probe.shell, printCommand(delimiter)],
      tty: false,
      mode: "prepared",
    });
  } catch (error) {
    return { type: "unreachable", reason: errorMessage(error) };
  }
  try {
    const printed = await readDelimited(process, delimiter, signal);
    return printed.type === "failed" ? printed : compare(printed, probe);
  } catch (error) {
    return { type: "unreachable", reason: errorMessage(error) };
  } finally {
    // The profile may have started a background process that holds the output open.
    probe.tasks.run(() => endProbe(process));
  }
}

/**
 * Prints the environment between two delimiters. `command env` bypasses functions of the profile. No shell has `env`
 * built in.
 */
const printCommand = (delimiter: string) => `printf '%s\\0' ${delimiter}; command env -0; printf '%s\\0' ${delimiter}`;

/** $1 is the delimiter, $2 the login shell, $3 its command. */
const PROBE_SCRIPT = `printf '%s\\0' "$1"; env -0; exec "$2" -lc "$3"`;

async function endProbe(process: ExecProcess): Promise<void> {
  await process.terminate({ type: "force" });
  await process[Symbol.asyncDispose]();
}

/** Returns the environments before and after the profile. */
async function readDelimited(
  process: ExecProcess,
  delimiter: string,
  signal: AbortSignal,
): Promise<{ type: "printed"; before: string; after: string } | { type: "failed"; reason: string }> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const event of process.events({ lossless: true, signal })) {
    if (event.type === "failed") throw new Error(event.message);
    if (event.type === "exited" && event.exitCode !== 0)
      return failed(`the login shell exited with code ${event.exitCode} before it ran the command`);
    if (event.type !== "output" || event.stream === "stderr") continue;
    chunks.push(event.chunk);
    bytes += event.chunk.length;
    if (bytes > MAX_PROBE_BYTES) return failed(`the profile printed more than ${MAX_PROBE_BYTES} bytes`);
    const parts = Buffer.concat(chunks).toString("utf8").split(`${delimiter}\0`);
    const [, before, after] = parts;
    // Output of the profile is between the first environment and the second delimiter.
    if (parts.length > 3 && before !== undefined && after !== undefined) return { type: "printed", before, after };
  }
  return failed("the login shell ended without printing its environment");
}

const failed = (reason: string) => ({ type: "failed", reason }) as const;

/** Variables that the shell itself sets, not its profile. */
const SHELL_VARIABLES: ReadonlySet<string> = new Set(["PWD", "OLDPWD", "SHLVL", "_"]);

function compare(printed: { before: string; after: string }, { backend, start }: LoginProbe): LoginEnvironment {
  const before = parseVariables(printed.before);
  const after = parseVariables(printed.after);
  const set: Record<string, string> = {};
  const dropped: string[] = [];
  for (const [name, value] of after) {
    if (before.get(name) === value || SHELL_VARIABLES.has(name)) continue;
    if (isFilteredSecret(name, value, before, backend, start.envPolicy)) dropped.push(name);
    else set[name] = value;
  }
  if (dropped.length > 0) backend.secrets?.onDropped(dropped);
  const unset = [...before.keys()].filter((name) => !after.has(name) && !SHELL_VARIABLES.has(name));
  return { type: "taken", set, unset };
}

/** Applies the secret filter to variables of the profile: a secret passes only if its name is allowed. */
function isFilteredSecret(
  name: string,
  value: string,
  before: ReadonlyMap<string, string>,
  { secrets }: ExecBackend,
  envPolicy: EnvPolicy | undefined,
): boolean {
  if (envPolicy?.ignoreDefaultExcludes || !looksSecret(name, value)) return false;
  return !before.has(name) && !secrets?.allowed.includes(name);
}

/** Parses the output of `env -0`. Omits values that are not UTF-8, because they cannot be passed on unchanged. */
function parseVariables(printed: string): Map<string, string> {
  const variables = new Map<string, string>();
  for (const entry of printed.split("\0").slice(0, -1)) {
    const at = entry.indexOf("=");
    if (at > 0 && !entry.includes("\uFFFD")) variables.set(entry.slice(0, at), entry.slice(at + 1));
  }
  return variables;
}
