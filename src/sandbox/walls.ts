import { closeSync } from "node:fs";
import type { SandboxPolicy, SandboxPrograms } from "./bubblewrap.ts";
import { bubblewrapOptions } from "./bubblewrap.ts";
import { openData, openPlace } from "./passed-descriptors.ts";
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
}

/** The number that the first passed descriptor has in the child. */
const FIRST_PASSED = 3;

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
        ...[programs.env, `--default-signal=${FORWARDED_SIGNALS}`],
        // Bubblewrap sets it on its own.
        command.env.PWD === undefined ? "--unset=PWD" : `PWD=${command.env.PWD}`,
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
