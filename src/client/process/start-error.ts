import { startDetails, toCallError, withCallerStack } from "../../exec/call-error.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";

/** A start request, and a check for missing files. */
export interface StartAttempt {
  argv: readonly string[];
  cwd: string | undefined;
  /** Reports whether the host has this file or directory. */
  exists(path: string): Promise<boolean>;
}

/**
 * Runs a start whose error names the missing file: servers return the same error for a missing executable, shell and
 * directory.
 */
export async function withStartErrors<T>(attempt: StartAttempt, start: () => Promise<T>): Promise<T> {
  const caller = new Error("called from here");
  try {
    return await start();
  } catch (error) {
    throw await startError(attempt, error, caller);
  }
}

async function startError(attempt: StartAttempt, cause: unknown, caller: Error): Promise<unknown> {
  const callError = toCallError(cause, startDetails(attempt), caller);
  if (!(callError instanceof ExecServerError) || callError.code === "EINVAL") return callError;
  const missing = await findMissingFile(attempt, callError.code);
  if (!missing) return callError;
  const { code, rpcCode, reason } = callError;
  const details = { ...startDetails(attempt), path: missing.path, rpcCode: rpcCode ?? undefined, reason };
  return withCallerStack(new ExecServerError(missing.message, code, details, { cause }), caller);
}

/** Returns the file or directory that caused the failure, or null for other failures. */
async function findMissingFile(
  { argv, cwd, exists }: StartAttempt,
  code: string,
): Promise<{ message: string; path: string | undefined } | null> {
  const program = argv[0] ?? "";
  const path = program.includes("/") ? program : undefined;
  const isPresent = (file: string) => exists(file).catch(() => true);
  if (code === "EACCES") return { message: `permission to run \`${program}\` was denied`, path };
  if (cwd !== undefined && code === "ENOTDIR")
    return { message: `cannot start \`${program}\` in ${cwd}: it is not a directory`, path: cwd };
  if (code !== "ENOENT") return null;
  if (cwd !== undefined && !(await isPresent(cwd)))
    return { message: `cannot start \`${program}\` in ${cwd}: there is no such directory`, path: cwd };
  if (isShell(argv)) return { message: `no such shell: \`${program}\``, path };
  const isScript = program.startsWith("/") && (await exists(program).catch(() => false));
  if (isScript) return { message: `the interpreter of \`${program}\` was not found`, path };
  return { message: `no such program: \`${program}\``, path };
}

/** Reports whether the command is a shell with a script: the user wrote the script, not the name of the shell. */
function isShell([program = "", flag = ""]: readonly string[]): boolean {
  return /^-[a-z]*c$/.test(flag) && /(^|\/)[a-z]*sh$/.test(program);
}
