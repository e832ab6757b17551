import type { ExecBackend } from "../../exec/exec-process.ts";
import { collectOutput } from "../../exec/run/collect-output.ts";

/** Prints the path of the working directory without symbolic links, and its device and inode if `stat` supports it. */
export const WORKDIR_SCRIPT = "pwd -P && { stat -c %d:%i . || :; }";

/** Maximum time to enter a directory. A slower host has a problem. */
const ENTER_TIMEOUT_MS = 10_000;

/** The working directory for which a command is approved and in which it must run. */
export interface Workdir {
  /** Absolute path. Without symbolic links if the directory was resolved on the host. */
  path: string;
  /**
   * Device and inode. Undefined if the path was not resolved or the host cannot determine them; only the path counts
   * then.
   */
  identity: string | undefined;
}

/**
 * Resolves a path on the host of the processes, so that the approval shows the directory in which the command runs. The
 * start request contains its identity: the server rejects a directory or link that replaced it during the approval.
 * Throws if the directory cannot be entered, because a different one could appear there later.
 */
export async function resolveWorkdir(
  backend: ExecBackend,
  workdir: string,
  newProcessId: () => string,
): Promise<Workdir> {
  await using process = await backend.start({
    processId: newProcessId(),
    // Path and identity both describe the shell's working directory, so they belong to the same directory.
    argv: ["/bin/sh", "-c", WORKDIR_SCRIPT],
    cwd: workdir,
    env: { PATH: "/usr/bin:/bin" },
    tty: false,
    mode: "prepared",
    timeoutMs: ENTER_TIMEOUT_MS,
  });
  const { exit, stdout } = await collectOutput(process, {});
  const [, path, identity] = /^(\/.*?)\n(?:(\d+:\d+)\n)?$/s.exec(new TextDecoder().decode(stdout)) ?? [];
  if (exit.exitCode !== 0 || path === undefined)
    throw new Error(`cannot resolve workdir \`${workdir}\`: the shell did not report its directory`);
  return { path, identity };
}
