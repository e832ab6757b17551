import { posix } from "node:path";

/**
 * Shells that parse a line like `shell-parser.ts`. fish and csh are not among them: they may run two commands where
 * this parser reads one quoted word.
 */
const PARSABLE_SHELLS = new Set(["sh", "bash", "dash", "ash", "ksh", "zsh"]);
/** Directories of system shells, to which commands normally cannot write. */
const SYSTEM_DIRECTORIES = new Set(["/bin", "/usr/bin"]);

export interface ShellChoice {
  /** Absolute, so that the approved shell runs regardless of PATH. */
  path: string;
  /**
   * `default`: the configured shell. `system`: sh, bash, dash, ash, ksh or zsh in /bin or /usr/bin. `other`: an unknown
   * program, which may do anything with the command, so an analysis of the command is meaningless.
   */
  kind: "default" | "system" | "other";
}

/**
 * Resolves the shell that a caller names. A bare name is the default shell if it has that name, otherwise the system shell
 * in /bin. A path is relative to the working directory of the command. Returns null for other names.
 */
export function chooseShell(named: string | undefined, defaultShell: string, workdir: string): ShellChoice | null {
  const path = resolveShellPath(named ?? defaultShell, defaultShell, workdir);
  if (path === null) return null;
  if (path === defaultShell) return { path, kind: "default" };
  return { path, kind: isSystemShell(path) ? "system" : "other" };
}

/** Returns the absolute path of a default shell. Throws for a relative path or an unknown name. */
export function absoluteShell(shell: string): string {
  if (posix.isAbsolute(shell)) return posix.normalize(shell);
  if (PARSABLE_SHELLS.has(shell)) return `/bin/${shell}`;
  throw new Error(`shell \`${shell}\` must be an absolute path`);
}

/** Reports whether the shell parses a line like `shell-parser.ts`. */
export function isParsableShell({ path, kind }: ShellChoice): boolean {
  return kind !== "other" && PARSABLE_SHELLS.has(posix.basename(path));
}

/** Shells that read start-up files for `-c` too, and the flag that stops it. bash reads only the file that `BASH_ENV` names. */
const FLAGS_WITHOUT_START_UP_FILES: ReadonlyMap<string, string> = new Map([
  ["zsh", "-fc"],
  ["fish", "-Nc"],
  ["csh", "-fc"],
  ["tcsh", "-fc"],
]);

export function flagWithoutStartUpFiles({ path }: ShellChoice): string {
  return FLAGS_WITHOUT_START_UP_FILES.get(posix.basename(path)) ?? "-c";
}

function resolveShellPath(named: string, defaultShell: string, workdir: string): string | null {
  if (named === defaultShell) return named;
  if (named.includes("/")) return posix.resolve(workdir, named);
  if (named === posix.basename(defaultShell)) return defaultShell;
  return PARSABLE_SHELLS.has(named) ? `/bin/${named}` : null;
}

function isSystemShell(path: string): boolean {
  return PARSABLE_SHELLS.has(posix.basename(path)) && SYSTEM_DIRECTORIES.has(posix.dirname(path));
}
