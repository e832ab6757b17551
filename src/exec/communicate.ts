import { type CollectOptions, collectOutput, type OutputText } from "./collect-output.ts";
import type { ExecProcess } from "./exec-process.ts";

export interface CommunicateResult extends OutputText {
  exitCode: number;
  signal: string | null;
}

/**
 * Sends `input`, closes stdin, and gathers all output until the process is closed.
 *
 * @example
 * const sort = await backend.start({ processId: "s", argv: ["sort"], cwd: "/", env: {}, tty: false, pipeStdin: true });
 * const { stdout } = await communicate(sort, "b\na\n");
 */
export async function communicate(
  process: ExecProcess,
  input: string | Uint8Array = "",
  options: Omit<CollectOptions, "input"> = {},
): Promise<CommunicateResult> {
  const { exit, ...output } = await collectOutput(process, { ...options, input });
  return { ...output, exitCode: exit.exitCode, signal: exit.signal };
}
