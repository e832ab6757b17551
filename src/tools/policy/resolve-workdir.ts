import type { ExecBackend } from "../../exec/exec-process.ts";
import { collectOutput } from "../../exec/run/collect-output.ts";

/** Tells the directory it is started in: its path without links, and which directory it is where `stat` can say so. */
export const WHERE_SCRIPT = "pwd -P && { stat -c %d:%i . || :; }";

/** A host that cannot enter a directory in this time is in trouble. */
const ENTER_TIMEOUT_MS = 10_000;

/** The directory a command is judged in and then has to run in. */
export interface Workdir {
  /** Absolute; links followed where somebody has looked. */
  path: string;
  /** Which directory it is; undefined where the host cannot tell, or nobody has looked. Then it is taken by its name. */
  identity: string | undefined;
}

/**
 * The directory behind a path, links followed, as the host of the processes sees it now: what is judged and shown is
 * where the command runs. Its identity goes along with the start, so that a directory or link that is put in its place
 * while the command is judged is refused. Throws for one that cannot be entered: it may be there a moment later, as
 * another one than was judged.
 */
export async function realWorkdir(
  backend: ExecBackend,
  workdir: string,
  newProcessId: () => string,
): Promise<Workdir> {
  await using process = await backend.start({
    processId: newProcessId(),
    // The path and the identity are told of the directory the shell stands in, so both are of the same one.
    argv: ["/bin/sh", "-c", WHERE_SCRIPT],
    cwd: workdir,
    env: { PATH: "/usr/bin:/bin" },
    tty: false,
    mode: "prepared",
    timeoutMs: ENTER_TIMEOUT_MS,
  });
  const { exit, stdout } = await collectOutput(process, {});
  const [, path, identity] = /^(\/.*?)\n(?:(\d+:\d+)\n)?$/s.exec(new TextDecoder().decode(stdout)) ?? [];
  if (exit.exitCode !== 0 || path === undefined)
    throw new Error(`workdir \`${workdir}\` cannot be looked at`);
  return { path, identity };
}
