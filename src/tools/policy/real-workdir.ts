import { collectOutput } from "../../exec/collect-output.ts";
import type { ExecBackend } from "../../exec/exec-process.ts";

/** A host that cannot enter a directory in this time is in trouble. */
const ENTER_TIMEOUT_MS = 10_000;

/**
 * The directory behind a path, links followed, as the host of the processes sees it now: what is judged and shown is
 * where the command runs. One that cannot be entered keeps its name, since no command will run there.
 */
export async function realWorkdir(
  backend: ExecBackend,
  workdir: string,
  newProcessId: () => string,
): Promise<string> {
  await using process = await backend.start({
    processId: newProcessId(),
    // Both are part of every shell, so nothing is looked for and no environment is needed.
    argv: ["/bin/sh", "-c", 'cd -P -- "$1" && pwd -P', "sh", workdir],
    cwd: "/",
    env: {},
    tty: false,
    mode: "prepared",
    timeoutMs: ENTER_TIMEOUT_MS,
  });
  const { exit, stdout } = await collectOutput(process, {});
  const path = stdout.replace(/\n$/, "");
  return exit.exitCode === 0 && path.startsWith("/") ? path : workdir;
}
