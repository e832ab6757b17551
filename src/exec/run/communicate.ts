import type { ExecProcess } from "../exec-process.ts";
import { checkInputData, type InputData } from "../options/input-bytes.ts";
import { checkArgument, checkOptions } from "../options/option-schema.ts";
import { communicateOptions, processKind } from "../options/process-options.ts";
import { type CollectedOutput, type CollectOptions, collectOutput, decodeOutput } from "./collect-output.ts";

export interface CommunicateResult extends CollectedOutput {
  exitCode: number;
  signal: string | null;
}

/**
 * Sends `input`, closes stdin and collects all output until the process is closed. An abort rejects with the signal's
 * reason; the process continues to run.
 *
 * @example
 * const sort = await backend.start({ processId: "s", argv: ["sort"], cwd: "/", env: {}, tty: false, pipeStdin: true });
 * const { stdout } = await communicate(sort, "b\na\n");
 */
export async function communicate(
  process: ExecProcess,
  input: InputData = "",
  options: Omit<CollectOptions, "input"> = {},
): Promise<CommunicateResult> {
  checkArgument("communicate", "process", process, processKind);
  checkInputData("communicate", "input", input);
  checkOptions("communicate", options, communicateOptions);
  const { exit, ...output } = decodeOutput(await collectOutput(process, { ...options, input }));
  return { ...output, exitCode: exit.exitCode, signal: exit.signal };
}
