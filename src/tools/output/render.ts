import type { ShownOutput } from "./token-budget.ts";
import { tokensOf } from "./token-budget.ts";

/** What a call found out, before it is put into words. */
export interface CallResult {
  chunkId: string;
  wallTimeMs: number;
  state:
    | { type: "exited"; exitCode: number; signal: string | null; sandboxDenied: boolean }
    | { type: "running"; sessionId: number }
    | { type: "failed"; sessionId: number; message: string };
  output: ShownOutput;
  /** The number under which `read_output` finds all of it; null when nothing keeps it. */
  archivedAs: number | null;
  /** What the terminal itself says: somebody is to type. */
  awaitingInput?: { secret: boolean };
  /** How a `wait_for` ended, in words. */
  waited?: string;
}

/** One fact a line, in the order models know from Codex; what is ours stands just before the output. */
export function renderText(result: CallResult): string {
  const { output } = result;
  const lines = [
    `Chunk ID: ${result.chunkId}`,
    `Wall time: ${(result.wallTimeMs / 1000).toFixed(4)} seconds`,
    stateLine(result.state),
    `Original token count: ${tokensOf(output.original)}`,
  ];
  if (result.waited !== undefined) lines.push(`Wait ended: ${result.waited}`);
  if (result.awaitingInput)
    lines.push(`Awaiting input: ${result.awaitingInput.secret ? "secret (echo is off)" : "yes"}`);
  if (output.omitted > 0 && result.archivedAs !== null)
    lines.push(`Left out: read_output with session_id ${result.archivedAs} reads it`);
  lines.push("Output:");
  if (output.omitted > 0) lines.push(...truncationLines(output));
  return `${lines.join("\n")}\n${output.text}`;
}

/** The same facts as an object, with the names models and programs know. */
export function renderStructured(result: CallResult): Record<string, unknown> {
  const { state, output } = result;
  return {
    chunk_id: result.chunkId,
    wall_time_seconds: result.wallTimeMs / 1000,
    ...(state.type === "exited" && { exit_code: state.exitCode }),
    ...(state.type === "exited" && state.signal !== null && { signal: state.signal }),
    ...(state.type === "exited" && state.sandboxDenied && { sandbox_denied: true }),
    ...(state.type === "running" && { session_id: state.sessionId }),
    ...(state.type === "failed" && { failure: state.message }),
    original_token_count: tokensOf(output.original),
    ...(result.waited !== undefined && { wait: result.waited }),
    ...(result.awaitingInput && { awaiting_input: result.awaitingInput }),
    ...(output.omitted > 0 && { truncation: truncationOf(result) }),
    output: output.text,
  };
}

function truncationOf({ output, archivedAs }: CallResult): Record<string, unknown> {
  const { original, retained, omitted } = output;
  return { original, retained, omitted, ...(archivedAs !== null && { read_output_session_id: archivedAs }) };
}

function truncationLines({ original, extent }: ShownOutput): string[] {
  const warning = `Warning: truncated output (original token count: ${tokensOf(original)})`;
  return extent === null ? [warning] : [warning, extent, ""];
}

function stateLine(state: CallResult["state"]): string {
  switch (state.type) {
    case "exited":
      return `Process exited with code ${state.exitCode}`;
    case "running":
      return `Process running with session ID ${state.sessionId}`;
    case "failed":
      return `Process of session ID ${state.sessionId} failed: ${state.message}`;
  }
}
