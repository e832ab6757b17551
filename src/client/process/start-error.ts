import { callError, withCaller } from "../../exec/call-error.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";

/** What was to be started, and how to look for what may be missing. */
export interface StartAttempt {
  argv: readonly string[];
  cwd: string | undefined;
  /** Whether the host has this file or directory. */
  exists(path: string): Promise<boolean>;
}

/** Makes a start whose failure says what was missing: servers answer a missing program, shell and directory alike. */
export async function explainingStart<T>(attempt: StartAttempt, start: () => Promise<T>): Promise<T> {
  const caller = new Error("called from here");
  try {
    return await start();
  } catch (error) {
    throw await startError(attempt, error, caller);
  }
}

async function startError(attempt: StartAttempt, cause: unknown, caller: Error): Promise<unknown> {
  const { argv } = attempt;
  const method = "process/start";
  const told = callError(cause, { method, argv }, caller);
  if (!(told instanceof ExecServerError)) return told;
  const missing = await whatWasMissing(attempt, told.code);
  if (!missing) return told;
  const { code, rpcCode } = told;
  const details = { argv, path: missing.path, method, rpcCode };
  return withCaller(new ExecServerError(missing.message, code, details, { cause }), caller);
}

/** Null where the failure is of another kind. */
async function whatWasMissing(
  { argv, cwd, exists }: StartAttempt,
  code: string,
): Promise<{ message: string; path: string | undefined } | null> {
  const program = argv[0] ?? "";
  const path = program.includes("/") ? program : undefined;
  const isThere = (wanted: string) => exists(wanted).catch(() => true);
  if (code === "EACCES") return { message: `permission to run \`${program}\` was denied`, path };
  if (cwd !== undefined && code === "ENOTDIR")
    return { message: `cannot start \`${program}\` in ${cwd}: it is not a directory`, path: cwd };
  if (code !== "ENOENT") return null;
  if (cwd !== undefined && !(await isThere(cwd)))
    return { message: `cannot start \`${program}\` in ${cwd}: there is no such directory`, path: cwd };
  if (isShell(argv)) return { message: `no such shell: \`${program}\``, path };
  const isScript = program.startsWith("/") && (await exists(program).catch(() => false));
  if (isScript) return { message: `the interpreter of \`${program}\` was not found`, path };
  return { message: `no such program: \`${program}\``, path };
}

/** A program that is given a script to run, as shells are: whoever asked for it has written the script, not the shell. */
function isShell([program = "", flag = ""]: readonly string[]): boolean {
  return /^-[a-z]*c$/.test(flag) && /(^|\/)[a-z]*sh$/.test(program);
}
