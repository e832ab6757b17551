import { posix } from "node:path";

/**
 * Shells that read a line as `shell-words.ts` does. fish and csh are none of them: what is one quoted word here may be
 * two commands there.
 */
const READABLE = new Set(["sh", "bash", "dash", "ash", "ksh", "zsh"]);
/** Where a shell of that name is the system's own, and not something a command may have put there. */
const SYSTEM_DIRECTORIES = new Set(["/bin", "/usr/bin"]);

export interface ShellChoice {
  /** Absolute: what is judged is what runs, whatever PATH says. */
  path: string;
  /**
   * `default`: the configured one. `system`: one of sh, bash, dash, ash, ksh, zsh in /bin or /usr/bin. `other`: it may do
   * anything with the command it is given, so nothing that is known of the command says what runs.
   */
  kind: "default" | "system" | "other";
}

/**
 * The shell a caller names. A bare name means the default shell when that has it, else the system's own of that name in
 * /bin; a path is taken from the working directory of the command. Null for a name that would have to be looked for.
 */
export function chooseShell(
  named: string | undefined,
  defaultShell: string,
  workdir: string,
): ShellChoice | null {
  const path = pathOf(named ?? defaultShell, defaultShell, workdir);
  if (path === null) return null;
  if (path === defaultShell) return { path, kind: "default" };
  return { path, kind: isSystemShell(path) ? "system" : "other" };
}

/** A default shell that is the same wherever it is looked for. Throws for a name that would have to be looked for. */
export function absoluteShell(shell: string): string {
  if (posix.isAbsolute(shell)) return posix.normalize(shell);
  if (READABLE.has(shell)) return `/bin/${shell}`;
  throw new Error(`shell \`${shell}\` must be an absolute path`);
}

/** Does it split a line into words and commands as is done here? */
export function isReadable({ path, kind }: ShellChoice): boolean {
  return kind !== "other" && READABLE.has(posix.basename(path));
}

function pathOf(named: string, defaultShell: string, workdir: string): string | null {
  if (named === defaultShell) return named;
  if (named.includes("/")) return posix.resolve(workdir, named);
  if (named === posix.basename(defaultShell)) return defaultShell;
  return READABLE.has(named) ? `/bin/${named}` : null;
}

function isSystemShell(path: string): boolean {
  return READABLE.has(posix.basename(path)) && SYSTEM_DIRECTORIES.has(posix.dirname(path));
}
