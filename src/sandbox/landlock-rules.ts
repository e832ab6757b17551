import type { SandboxPolicy } from "./bubblewrap.ts";

/** The first version of Landlock with rules for files that allow a rename to another directory. */
export const LANDLOCK_FILES_ABI = 2;

/** The first version of Landlock that restricts abstract sockets and signals. */
export const LANDLOCK_SCOPES_ABI = 6;

/** Applies Landlock rules inside a sandbox. */
export interface LandlockSupport {
  /** Absolute path of the executable that enters the domain and becomes the command. */
  readonly program: string;
}

/**
 * Returns the paths below which the Landlock domain of a command allows writing, or null if the command may write everywhere.
 * Mounts protect paths inside of them: /dev, /proc and read-only roots below a writable root.
 */
export function landlockWritablePaths({ roots, tmp }: SandboxPolicy): string[] | null {
  const writable = roots.filter(({ access }) => access === "write").map(({ path }) => path);
  if (writable.includes("/")) return null;
  return [...new Set(["/dev", "/proc", ...(tmp === "shared" ? [] : ["/tmp"]), ...writable])];
}
