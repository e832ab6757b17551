import type { ExecProcess } from "../exec-process.ts";
import { asText, type CollectedOutput, type CollectOptions, collectOutput } from "./collect-output.ts";

export interface CommunicateResult extends CollectedOutput {
  exitCode: number;
  signal: string | null;
}

/**
 * Sends `input`, closes stdin, and gathers all output until the process is closed. An abort rejects with its reason; the
 * process goes on.
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
  const { exit, ...output } = asText(await collectOutput(process, { ...options, input }));
  return { ...output, exitCode: exit.exitCode, signal: exit.signal };
}
