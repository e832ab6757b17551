import { posix } from "node:path";
import type { ExecBackend, StartParams } from "../../exec/exec-process.ts";
import { collectOutput } from "../../exec/run/collect-output.ts";
import { isStrictlyBelow, isWithin } from "../../sandbox/bubblewrap.ts";
import type { SandboxChoice } from "./sandbox-choice.ts";

/** Directories of an unsandboxed command that sandboxed commands of the same host could have written. */
export interface SandboxExposure {
  /** The home directory, or another directory that holds start-up files of the command's shell. */
  home: boolean;
  /** The working directory, or a repository around it. */
  workdir: boolean;
}

export const NOT_EXPOSED: SandboxExposure = { home: false, workdir: false };
const EXPOSED: SandboxExposure = { home: true, workdir: true };

/** Writable roots of all sandboxes that tools of this process have used on a host. */
const writableRoots = new WeakMap<ExecBackend, Set<string>>();

export function noteWritableRoots(host: ExecBackend, choice: SandboxChoice): void {
  const roots = writableRoots.get(host) ?? new Set<string>();
  writableRoots.set(host, roots);
  if (choice.type !== "none") for (const root of choice.writableRoots) roots.add(root);
}

export function writableRootsOf(host: ExecBackend): string[] {
  return [...(writableRoots.get(host) ?? [])];
}

/**
 * Prints paths with the prefix `=`, each as named and with links followed, in three lists: writable roots, directories
 * of start-up files, and the working directory with every repository above it. `$1` is the working directory; the roots
 * follow. The script runs no program from the printed paths.
 */
export const EXPOSURE_SCRIPT = `PATH=/usr/bin:/bin
show() { case $1 in ?*) printf '=%s\\0=%s\\0' "$1" "$(readlink -f -- "$1")" ;; esac; }
from() { case $2 in /*) show "$2" ;; ?*) show "$1/$2" ;; esac; }
work=$1
shift
for root; do show "$root"; done
printf '%s\\0' :home
show "$HOME"
show "$ZDOTDIR"
show "\${XDG_CONFIG_HOME:-$HOME/.config}"
show "$BASH_ENV"
show "$ENV"
user=$(id -un)
case $user in *[!A-Za-z0-9._-]* | '') ;; *) eval "show ~$user" ;; esac
printf '%s\\0' :workdir
show "$work"
at=$work
while :; do
  if [ -e "$at/.git" ] || [ -L "$at/.git" ]; then
    show "$at"
    show "$at/.git"
    git=$at/.git
    if [ -f "$git" ]; then
      line=
      IFS= read -r line <"$git"
      from "$at" "\${line#gitdir: }"
      case $line in 'gitdir: /'*) git=\${line#gitdir: } ;; *) git=$at/\${line#gitdir: } ;; esac
    fi
    if [ -f "$git/commondir" ]; then
      line=
      IFS= read -r line <"$git/commondir"
      from "$git" "$line"
    fi
  fi
  case $at in / | '') break ;; esac
  at=\${at%/*}
done
printf '%s\\0' :end
`;

/** Maximum time of the check. A slower host has a problem. */
const CHECK_TIMEOUT_MS = 10_000;

/**
 * Checks whether sandboxed commands could have written the home or the working directory of a command. The check runs on
 * the host, with its links and variables. A failed check counts as exposed.
 */
export async function findExposure(
  backend: ExecBackend,
  roots: readonly string[],
  workdir: string,
  start: Pick<StartParams, "env" | "envPolicy">,
  newProcessId: () => string,
): Promise<SandboxExposure> {
  try {
    await using process = await backend.start({
      ...start,
      processId: newProcessId(),
      argv: ["/bin/sh", "-c", EXPOSURE_SCRIPT, "sh", workdir, ...roots],
      cwd: "/",
      tty: false,
      mode: "prepared",
      timeoutMs: CHECK_TIMEOUT_MS,
    });
    const { exit, stdout } = await collectOutput(process, {});
    const lists = parseLists(new TextDecoder().decode(stdout));
    return exit.exitCode === 0 && lists ? compareLists(lists) : EXPOSED;
  } catch {
    return EXPOSED;
  }
}

interface PathLists {
  roots: readonly string[];
  homes: readonly string[];
  workdirs: readonly string[];
}

/** Returns the printed lists, or null if the output is incomplete. */
function parseLists(printed: string): PathLists | null {
  const words = printed.split("\0");
  const [home = -1, workdir = -1, end = -1] = [":home", ":workdir", ":end"].map((heading) => words.indexOf(heading));
  if (home < 0 || workdir < home || end < workdir) return null;
  // A bare prefix is a path whose links the host cannot follow.
  const paths = (from: number, to: number) =>
    words.slice(from, to).flatMap((word) => (word.length > 1 ? [word.slice(1)] : []));
  return {
    roots: paths(0, home).map((root) => posix.resolve(root)),
    homes: paths(home + 1, workdir),
    workdirs: paths(workdir + 1, end).map((path) => posix.resolve(path)),
  };
}

function compareLists({ roots, homes, workdirs }: PathLists): SandboxExposure {
  const isExposed = (path: string) => roots.some((root) => isWithin(path, root));
  return {
    // The shell expands `BASH_ENV` and `ENV`, so a relative value may lead anywhere.
    home: homes.some((path) => !posix.isAbsolute(path) || path.includes("$") || isExposed(posix.resolve(path))),
    // A root below the directory counts too: programs read files below, such as the settings of a submodule.
    workdir: workdirs.some((path) => isExposed(path) || roots.some((root) => isStrictlyBelow(root, path))),
  };
}
