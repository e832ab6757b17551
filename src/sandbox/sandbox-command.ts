import { closeSync } from "node:fs";
import type { SandboxPolicy, SandboxPrograms } from "./bubblewrap.ts";
import { bubblewrapOptions } from "./bubblewrap.ts";
import { copyOf, openData, openPlace } from "./inherited-fds.ts";
import { seccompFilter } from "./seccomp-filter.ts";

/** A command behind walls, ready to be started. The caller of `raiseWalls` disposes of them once it has started. */
export interface Walls extends Disposable {
  file: string;
  argv: string[];
  /** Of the walls' own programs: nothing of the command's, which could make them load what the command has written. */
  env: Record<string, string>;
  /** To be passed on as 3, 4 and so on. */
  descriptors: readonly number[];
}

export interface WalledCommand {
  argv: readonly string[];
  /** Exactly what the command gets. */
  env: Readonly<Record<string, string>>;
  /** A descriptor of the directory that the policy's `cwd` has to be; stays the caller's. */
  directory?: number | undefined;
}

/** The number that the first passed descriptor has in the child. */
const FIRST_PASSED = 3;

/**
 * Bubblewrap enters the directory by its name, behind the walls. What was entered stays what it is, so there it is compared
 * with the one that was meant, before the command begins; the command does not get the descriptor. The refusal is `$0`.
 */
const IN_THE_DIRECTORY_OF_3 = '[ . -ef /proc/self/fd/3 ] || { echo "$0" >&2; exit 126; }; exec "$@" 3<&-';

/** What shells add to their environment. */
const SHELL_VARIABLES = ["PWD", "OLDPWD", "SHLVL", "_"];

/** What Ctrl-C, Ctrl-\, a graceful end, a hangup and a program's own uses of signals send to the whole group. */
const FORWARDED_SIGNALS = "INT,QUIT,TERM,HUP,USR1,USR2";

/**
 * The command that runs `command` behind the walls of `policy`: the filter, the roots and the environment are in descriptors.
 * Throws when a root that has to be opened is no longer where it was.
 */
export function raiseWalls(policy: SandboxPolicy, command: WalledCommand, programs: SandboxPrograms): Walls {
  const descriptors: number[] = [];
  const pass = (fd: number) => FIRST_PASSED + descriptors.push(fd) - 1;
  const close = () => {
    for (const fd of descriptors.splice(0)) closeSync(fd);
  };
  try {
    const entering: string[] = [];
    if (command.directory !== undefined && programs.sh !== null) {
      // The first, since a shell can close descriptors of one digit only.
      pass(copyOf(command.directory));
      const refusal = `cwd \`${policy.cwd}\` is no longer the directory that was meant: another one is in its place`;
      entering.push(programs.sh, "-c", IN_THE_DIRECTORY_OF_3, refusal);
    }
    const filter = pass(openData(seccompFilter({ network: policy.network, arch: programs.arch })));
    const options = [
      ...bubblewrapOptions(policy, (path) => {
        const fd = openPlace(path);
        if (programs.bindsDescriptors) return pass(fd);
        closeSync(fd);
        return null;
      }),
      ...["--seccomp", `${filter}`],
      "--clearenv",
      ...variables(command.env).flatMap(([name, value]) => ["--setenv", name, value]),
    ];
    // Not among the arguments, which everybody on the host can read.
    const list = pass(openData(new TextEncoder().encode(options.map((option) => `${option}\0`).join(""))));
    return {
      file: programs.env,
      argv: [
        // A signal to the group would end bubblewrap itself, and with it, at once, everything inside. So it ignores what
        // people send, and the command inside gets the defaults back.
        ...[programs.env, `--ignore-signal=${FORWARDED_SIGNALS}`],
        ...[programs.bwrap, "--args", `${list}`, "--"],
        ...entering,
        ...[programs.env, `--default-signal=${FORWARDED_SIGNALS}`],
        // Bubblewrap sets PWD on its own, and a shell more.
        ...restored(command.env, entering.length === 0 ? ["PWD"] : SHELL_VARIABLES),
        // env would take a program with an equals sign in its name for a variable.
        ...(command.argv[0]?.includes("=") ? ["/bin/sh", "-c", 'exec "$0" "$@"'] : []),
        ...command.argv,
      ],
      env: {},
      descriptors,
      [Symbol.dispose]: close,
    };
  } catch (error) {
    close();
    throw error;
  }
}

/** Options of env that give these variables back what the command is to get. */
function restored(env: WalledCommand["env"], names: readonly string[]): string[] {
  const missing = names.filter((name) => env[name] === undefined);
  const given = names.filter((name) => env[name] !== undefined);
  return [...missing.map((name) => `--unset=${name}`), ...given.map((name) => `${name}=${env[name]}`)];
}

/** As the system would see them: a name ends at its first equals sign, and one without a name is none. */
function variables(env: WalledCommand["env"]): [name: string, value: string][] {
  return Object.entries(env).flatMap(([name, value]): [string, string][] => {
    const text = `${name}=${value}`;
    // A zero byte would end the list's entry, and what follows would be an option.
    if (text.includes("\0")) throw new Error("data provided contains a nul byte");
    const end = text.indexOf("=");
    return end === 0 ? [] : [[text.slice(0, end), text.slice(end + 1)]];
  });
}
