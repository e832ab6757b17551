import { realpathSync } from "node:fs";
import { userInfo } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { hasErrorCode } from "../base/error-code.ts";
import { isWithin, type SandboxRoot } from "./bubblewrap.ts";
import type { SandboxEntry } from "./sandbox-request.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** Start-up files of sh, bash and ksh in the home directory, and `.inputrc`, whose macros type commands. */
const HOME_FILES = [
  ...[".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases", ".bash_logout"],
  ...[".inputrc", ".kshrc"],
];

/** zsh prefers a compiled `.zwc` file, even where the file that it was compiled from is missing. */
const ZSH_FILES = [".zshenv", ".zprofile", ".zshrc", ".zlogin", ".zlogout"].flatMap((name) => [name, `${name}.zwc`]);

/** Names of start-up files, and of the directory that holds those of fish. */
export const START_UP_NAMES: readonly string[] = [...HOME_FILES, ...ZSH_FILES, ".config"];

/**
 * Contents of a placeholder that keeps the shell's behavior while the file is missing. bash reads only the first of
 * `.bash_profile`, `.bash_login` and `.profile`, and readline reads `/etc/inputrc` only without `~/.inputrc`.
 */
const PLACEHOLDERS: ReadonlyMap<string, string> = new Map([
  [".bash_profile", "if [ -r ~/.bash_login ]; then . ~/.bash_login; elif [ -r ~/.profile ]; then . ~/.profile; fi\n"],
  [".bash_login", "if [ -r ~/.profile ]; then . ~/.profile; fi\n"],
  [".inputrc", "$include /etc/inputrc\n"],
]);

/** A path that is read-only in sandboxes that protect the user's paths. */
interface ProtectedPath {
  path: string;
  /** Contents of the placeholder; undefined for a directory. */
  placeholder?: string | undefined;
}

/**
 * Returns entries that make paths of the user within the writable roots read-only, also while they are missing: the start-up
 * files of bash, zsh, fish and sh, and the data directories of procwire. Derives the paths from the command's
 * environment, the server's environment and the home directory of the user database.
 */
export function protectUserPaths(env: Environment, writable: readonly SandboxRoot[]): SandboxEntry[] {
  const found = new Map<string, ProtectedPath>();
  for (const environment of [env, process.env, { HOME: databaseHome() }]) {
    for (const startUp of startUpPaths(environment)) found.set(startUp.path, startUp);
  }
  const roots = writable.map((root) => root.path);
  for (const directory of dataDirectories(env)) {
    // A writable root overrides a read-only one at the same path.
    const paths = roots.includes(nearestReal(directory) ?? "")
      ? DATA_NAMES.map((name) => join(directory, name))
      : [directory];
    for (const path of paths) found.set(path, { path });
  }
  const isWritable = (path: string | null) => path !== null && roots.some((root) => isWithin(path, root));
  return [...found.values()]
    .filter(({ path }) => isWritable(nearestReal(dirname(path))) || isWritable(nearestReal(path)))
    .map(({ path, placeholder }) => ({
      location: { type: "path", path },
      access: "read",
      missing: "enforce",
      placeholder,
    }));
}

/** Directories of threads and jobs below a data directory. */
const DATA_NAMES = ["jobs", "threads"];

/**
 * Returns the directories that can hold threads and jobs: PROCWIRE_HOME, PROCWIRE_JOBS, and `.procwire` in both default
 * locations.
 */
function dataDirectories(env: Environment): string[] {
  const homes = [env.HOME, process.env.HOME, databaseHome()].filter(isAbsolute);
  return [
    ...homes.map((home) => join(home, ".procwire")),
    ...[env.PROCWIRE_HOME, env.PROCWIRE_JOBS].filter(isAbsolute),
    // Like procwire itself, relative to the working directory.
    ...[process.env.PROCWIRE_HOME || null, process.env.PROCWIRE_JOBS || null, ".procwire"].flatMap(
      fromWorkingDirectory,
    ),
  ];
}

function fromWorkingDirectory(path: string | null): string[] {
  try {
    return path === null ? [] : [resolve(path)];
  } catch {
    // The working directory was removed.
    return [];
  }
}

function startUpPaths({ HOME, ZDOTDIR, XDG_CONFIG_HOME, BASH_ENV, ENV }: Environment): ProtectedPath[] {
  const homes = [HOME].filter(isAbsolute);
  const files = [
    ...homes.flatMap((home) => HOME_FILES.map((name) => join(home, name))),
    ...[...homes, ZDOTDIR].filter(isAbsolute).flatMap((home) => ZSH_FILES.map((name) => join(home, name))),
    ...[BASH_ENV, ENV].filter(isAbsolute),
  ];
  const configurations = [...homes.map((home) => join(home, ".config")), XDG_CONFIG_HOME].filter(isAbsolute);
  return [
    ...files.map((path) => ({ path, placeholder: PLACEHOLDERS.get(basename(path)) ?? "" })),
    // The whole directory: fish also loads `conf.d`, `functions` and `completions` from it.
    ...configurations.map((path) => ({ path: join(path, "fish") })),
  ];
}

const isAbsolute = (path: string | undefined): path is string => path?.startsWith("/") ?? false;

function databaseHome(): string | undefined {
  try {
    return userInfo().homedir;
  } catch {
    // The user has no entry in the user database.
    return undefined;
  }
}

/** Returns the real path of the nearest existing ancestor or of the path itself, or null if the path is unreachable. */
function nearestReal(path: string): string | null {
  try {
    return realpathSync.native(path);
  } catch (error) {
    // A command of the same user cannot reach it either.
    if (!hasErrorCode(error, "ENOENT", "ENOTDIR")) return null;
    return path === "/" ? null : nearestReal(dirname(path));
  }
}
