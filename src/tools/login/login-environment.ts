import { randomUUID } from "node:crypto";
import type { Clock } from "../../async/clock.ts";
import type { TaskSet } from "../../async/task-set.ts";
import { messageOf } from "../../base/error-message.ts";
import { looksSecret } from "../../exec/backend/secret-filter.ts";
import type { EnvPolicy, ExecBackend, ExecProcess, StartParams } from "../../exec/exec-process.ts";

/** What a login shell's profile does to the environment, or why that is not known. */
export type LoginEnvironment =
  | {
      type: "taken";
      /** Variables the profile sets or changes, without those that look like secrets. */
      set: Readonly<Record<string, string>>;
      /** Variables it removes. */
      unset: readonly string[];
    }
  /** The profile did not end in time. A login shell would hang in it each time, so commands run without it. */
  | { type: "late"; reason: string }
  /** The shell ended without saying; each command then gets a login shell of its own. */
  | { type: "failed"; reason: string }
  /** The shell could not be started or followed this time; it is tried again with the next command. */
  | { type: "unreachable"; reason: string };

export interface LoginProbe {
  backend: ExecBackend;
  clock: Clock;
  /** Owns what goes on after the answer: ending the probe. */
  tasks: TaskSet;
  /** Absolute. */
  shell: string;
  /** What a command would be started with, walls included: the profile runs as it would for that command. */
  start: Pick<StartParams, "cwd" | "env" | "envPolicy" | "sandbox" | "sandboxScope">;
  deadlineMs: number;
  newProcessId: () => string;
}

/** An environment is some kilobytes; a profile that prints more than this is not worth reading to the end. */
const MAX_PROBE_BYTES = 4 * 1024 * 1024;

/**
 * Starts a login shell that prints its environment, and compares it with the one the shell was started in. Never rejects:
 * what went wrong is an outcome.
 */
export async function takeLoginEnvironment(probe: LoginProbe): Promise<LoginEnvironment> {
  const { clock, deadlineMs, shell, tasks } = probe;
  const over = new AbortController();
  const late = Promise.withResolvers<LoginEnvironment>();
  const deadline = clock.after(deadlineMs, () => {
    const reason = `the profile of the login shell ${shell} did not end within ${deadlineMs / 1000} s`;
    late.resolve({ type: "late", reason });
    over.abort();
  });
  const taking = take(probe, over.signal);
  tasks.run(async () => {
    await taking;
  });
  try {
    return await Promise.race([taking, late.promise]);
  } finally {
    deadline.cancel();
  }
}

async function take(probe: LoginProbe, signal: AbortSignal): Promise<LoginEnvironment> {
  const mark = randomUUID();
  let process: ExecProcess;
  try {
    process = await probe.backend.start({
      ...probe.start,
      processId: probe.newProcessId(),
      argv: ["/bin/sh", "-c", BEFORE_AND_AFTER, "sh", mark, probe.shell, printing(mark)],
      tty: false,
      mode: "prepared",
    });
  } catch (error) {
    return { type: "unreachable", reason: messageOf(error) };
  }
  try {
    const printed = await readMarked(process, mark, signal);
    return typeof printed === "string" ? { type: "failed", reason: printed } : compare(printed, probe);
  } catch (error) {
    return { type: "unreachable", reason: messageOf(error) };
  } finally {
    // A profile may have left something running that holds the output open.
    probe.tasks.run(() => end(process));
  }
}

/** The environment between two marks. No shell has `env` built in, and no function of a profile stands in for it. */
const printing = (mark: string) => `printf '%s\\0' ${mark}; command env -0; printf '%s\\0' ${mark}`;

/** $1 is the mark, $2 the login shell, $3 what that runs. */
const BEFORE_AND_AFTER = `printf '%s\\0' "$1"; env -0; exec "$2" -lc "$3"`;

async function end(process: ExecProcess): Promise<void> {
  await process.terminate({ type: "force" });
  await process[Symbol.asyncDispose]();
}

/** The two environments, as the shell was started and as its profile left it; or why there are none. */
async function readMarked(
  process: ExecProcess,
  mark: string,
  signal: AbortSignal,
): Promise<{ before: string; after: string } | string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const event of process.events({ lossless: true, signal })) {
    if (event.type === "failed") throw new Error(event.message);
    if (event.type === "exited" && event.exitCode !== 0)
      return `the login shell ended with code ${event.exitCode} before it ran anything`;
    if (event.type !== "output" || event.stream === "stderr") continue;
    chunks.push(event.chunk);
    bytes += event.chunk.length;
    if (bytes > MAX_PROBE_BYTES) return `the profile printed more than ${MAX_PROBE_BYTES} bytes`;
    const parts = Buffer.concat(chunks).toString("utf8").split(`${mark}\0`);
    const [, before, after] = parts;
    // What the profile printed stands between the first environment and the mark before the second.
    if (parts.length > 3 && before !== undefined && after !== undefined) return { before, after };
  }
  return "the login shell ended without printing its environment";
}

/** Of the shell itself, not of its profile. */
const OF_THE_SHELL: ReadonlySet<string> = new Set(["PWD", "OLDPWD", "SHLVL", "_"]);

function compare(
  printed: { before: string; after: string },
  { backend, start }: LoginProbe,
): LoginEnvironment {
  const before = variablesOf(printed.before);
  const after = variablesOf(printed.after);
  const set: Record<string, string> = {};
  const dropped: string[] = [];
  for (const [name, value] of after) {
    if (before.get(name) === value || OF_THE_SHELL.has(name)) continue;
    if (isWithheld(name, value, before, backend, start.envPolicy)) dropped.push(name);
    else set[name] = value;
  }
  if (dropped.length > 0) backend.secrets?.onDropped(dropped);
  const unset = [...before.keys()].filter((name) => !after.has(name) && !OF_THE_SHELL.has(name));
  return { type: "taken", set, unset };
}

/** What a profile exports is guarded like what the host has: a secret is passed on only where its name is let through. */
function isWithheld(
  name: string,
  value: string,
  before: ReadonlyMap<string, string>,
  { secrets }: ExecBackend,
  envPolicy: EnvPolicy | null | undefined,
): boolean {
  if (envPolicy?.ignoreDefaultExcludes || !looksSecret(name, value)) return false;
  return !before.has(name) && !secrets?.inherit.includes(name);
}

/** A value that is no text is left out: it could only be passed on mangled. */
function variablesOf(printed: string): Map<string, string> {
  const variables = new Map<string, string>();
  for (const entry of printed.split("\0").slice(0, -1)) {
    const at = entry.indexOf("=");
    if (at > 0 && !entry.includes("\uFFFD")) variables.set(entry.slice(0, at), entry.slice(at + 1));
  }
  return variables;
}
