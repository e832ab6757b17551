import { closeSync } from "node:fs";
import type { ListenerChannel, ListenerSupport } from "../exec/backend/listener-channel.ts";
import { bubblewrapArguments, type SandboxPolicy, type SandboxPrograms } from "./bubblewrap.ts";
import { duplicateFd, openAnonymousFile, openExecutable, openPath } from "./inherited-fds.ts";
import { type LandlockSupport, landlockWritablePaths } from "./landlock-rules.ts";
import { seccompFilter } from "./seccomp-filter.ts";

/** A sandboxed command that is ready to spawn. The caller of `buildSandboxCommand` disposes it after the start. */
export interface SandboxCommand extends Disposable {
  file: string;
  argv: string[];
  /** Environment of `env` and bubblewrap. It excludes the command's variables, which could make them load its files. */
  env: Record<string, string>;
  /** To be inherited as descriptors 3, 4 and so on. */
  descriptors: readonly number[];
  /** Receives the listeners of the sandbox; null if it has none. The caller closes it when the process has ended. */
  channel: ListenerChannel | null;
  /** The command enters a Landlock domain inside the sandbox. */
  hasLandlockRules: boolean;
}

export interface CommandToSandbox {
  argv: readonly string[];
  /** The exact environment of the command. */
  env: Readonly<Record<string, string>>;
  /** A descriptor of the directory that `cwd` must be. The caller owns it. */
  directory?: number | undefined;
  /** Ports of the sandbox's own loopback interface that the server serves. Requires a policy without network access. */
  listeners?: { ports: readonly number[]; support: ListenerSupport } | undefined;
  /** Applies Landlock rules in addition to the mounts. */
  landlock?: LandlockSupport | null | undefined;
}

/** The child's number of the first inherited descriptor. */
const FIRST_INHERITED = 3;

/**
 * Bubblewrap enters the working directory by name, inside the sandbox. This script then compares it with descriptor 3 before
 * the command starts, and closes the descriptor. `$0` is the error message.
 */
const CHECK_DIRECTORY_OF_FD_3 = '[ . -ef /proc/self/fd/3 ] || { echo "$0" >&2; exit 126; }; exec "$@" 3<&-';

/** Variables that shells add to their environment. */
const SHELL_VARIABLES = ["PWD", "OLDPWD", "SHLVL", "_"];

/** Signals that terminals, graceful termination and applications send to the whole process group. */
const FORWARDED_SIGNALS = "INT,QUIT,TERM,HUP,USR1,USR2";

/**
 * Builds the command that runs `command` in the sandbox of `policy`. Filter, roots and environment are passed in
 * descriptors. Throws if a root that must be opened has moved.
 */
export function buildSandboxCommand(
  policy: SandboxPolicy,
  command: CommandToSandbox,
  programs: SandboxPrograms,
): SandboxCommand {
  const descriptors: number[] = [];
  const { listeners } = command;
  let channel: ListenerChannel | null = null;
  const pass = (fd: number) => FIRST_INHERITED + descriptors.push(fd) - 1;
  const close = () => {
    for (const fd of descriptors.splice(0)) closeSync(fd);
  };
  try {
    const directoryCheck: string[] = [];
    if (command.directory !== undefined && programs.sh !== null) {
      // Must be first, since a shell can close only descriptors of one digit.
      pass(duplicateFd(command.directory));
      const refusal = `cwd \`${policy.cwd}\`: directory changed since it was checked`;
      directoryCheck.push(programs.sh, "-c", CHECK_DIRECTORY_OF_FD_3, refusal);
    }
    const firstProgram: string[] = [];
    const landlock = command.landlock ?? null;
    const writablePaths = landlock && landlockWritablePaths(policy);
    const program = listeners?.support.program ?? (writablePaths && landlock?.program);
    if (program) {
      channel = listeners?.support.openChannel() ?? null;
      const end = channel ? pass(channel.sandboxEnd) : "-";
      // By descriptor, because the sandbox may hide the path.
      const self = pass(openExecutable(program));
      const ports = listeners?.ports.map(String) ?? [];
      firstProgram.push(`/proc/self/fd/${self}`, `${end}`, `${self}`, ...ports, ...(writablePaths ?? []), "--");
    }
    const { network } = policy;
    const isManaged = listeners !== undefined;
    const filter = pass(openAnonymousFile(seccompFilter({ network, isManaged, arch: programs.arch })));
    const options = [
      ...bubblewrapArguments(policy, (path) => {
        const fd = openPath(path);
        if (programs.bindsDescriptors) return pass(fd);
        closeSync(fd);
        return null;
      }),
      ...["--seccomp", `${filter}`],
      "--clearenv",
      ...variables(command.env).flatMap(([name, value]) => ["--setenv", name, value]),
    ];
    // Not passed as arguments, which every user of the host can read.
    const list = pass(openAnonymousFile(new TextEncoder().encode(options.map((option) => `${option}\0`).join(""))));
    return {
      file: programs.env,
      argv: [
        // A signal to the process group would kill bubblewrap and everything inside it. So bubblewrap ignores these signals,
        // and the command inside gets the default handling back.
        ...[programs.env, `--ignore-signal=${FORWARDED_SIGNALS}`],
        ...[programs.bwrap, "--args", `${list}`, "--"],
        ...firstProgram,
        ...directoryCheck,
        ...[programs.env, `--default-signal=${FORWARDED_SIGNALS}`],
        // Bubblewrap sets PWD; the checking shell sets more.
        ...envRestoreOptions(command.env, directoryCheck.length === 0 ? ["PWD"] : SHELL_VARIABLES),
        // `env` would parse an executable with an equals sign in its name as a variable.
        ...(command.argv[0]?.includes("=") ? ["/bin/sh", "-c", 'exec "$0" "$@"'] : []),
        ...command.argv,
      ],
      env: {},
      descriptors,
      channel,
      hasLandlockRules: writablePaths !== null,
      [Symbol.dispose]: close,
    };
  } catch (error) {
    close();
    channel?.close();
    throw error;
  }
}

/** Returns options of `env` that restore the command's values of these variables. */
function envRestoreOptions(env: CommandToSandbox["env"], names: readonly string[]): string[] {
  const missing = names.filter((name) => env[name] === undefined);
  const given = names.filter((name) => env[name] !== undefined);
  return [...missing.map((name) => `--unset=${name}`), ...given.map((name) => `${name}=${env[name]}`)];
}

/** Splits each variable at the first equals sign, like the system; drops variables without a name. */
function variables(env: CommandToSandbox["env"]): [name: string, value: string][] {
  return Object.entries(env).flatMap(([name, value]): [string, string][] => {
    const text = `${name}=${value}`;
    // A NUL byte would end the entry, and the rest would become an option.
    if (text.includes("\0")) throw new Error("data provided contains a nul byte");
    const end = text.indexOf("=");
    return end === 0 ? [] : [[text.slice(0, end), text.slice(end + 1)]];
  });
}
