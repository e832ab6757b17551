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
  /** The terminal's mode says that the program waits for input. */
  awaitingInput?: { secret: boolean } | undefined;
  /** With a secret that is awaited: how a person gets there, where that is possible. */
  attach?: { handle: string; command: string } | undefined;
  /** What a person has to do with it, since the last call. */
  person?: "drives" | "handed_back" | undefined;
  /** How a `wait_for` ended, in words. */
  waited?: string | undefined;
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
  if (result.state.type === "exited" && result.state.sandboxDenied)
    lines.push("Sandbox: seems to have refused something, perhaps the network");
  if (result.waited !== undefined) lines.push(`Wait ended: ${result.waited}`);
  if (result.awaitingInput)
    lines.push(`Awaiting input: ${result.awaitingInput.secret ? "secret (echo is off)" : "yes"}`);
  if (result.attach)
    lines.push(`Waiting for: secret; a person can type it with \`${result.attach.command}\``);
  if (result.person) lines.push(`Person: ${PERSON[result.person]}`);
  if (output.omitted > 0 && result.archivedAs !== null)
    lines.push(`Left out: read_output with session_id ${result.archivedAs} reads it`);
  lines.push("Output:");
  if (output.omitted > 0) lines.push(...truncationLines(output));
  return `${lines.join("\n")}\n${output.text}`;
}

const PERSON = {
  drives: "drives this terminal now",
  handed_back: "has driven this terminal since the last call, and has handed it back",
} as const;

/** The same facts as an object, with the names models and programs know. */
export function renderStructured(result: CallResult): Record<string, unknown> {
  const { state, output } = result;
  const exited = state.type === "exited" ? state : null;
  return withoutUndefined({
    chunk_id: result.chunkId,
    wall_time_seconds: result.wallTimeMs / 1000,
    exit_code: exited?.exitCode,
    signal: exited?.signal ?? undefined,
    sandbox_denied: exited?.sandboxDenied || undefined,
    session_id: state.type === "running" ? state.sessionId : undefined,
    failure: state.type === "failed" ? state.message : undefined,
    original_token_count: tokensOf(output.original),
    wait: result.waited,
    awaiting_input: result.awaitingInput,
    waiting_for: result.awaitingInput?.secret ? "secret" : undefined,
    attach: result.attach,
    person: result.person,
    truncation: output.omitted > 0 ? truncationOf(result) : undefined,
    output: output.text,
  });
}

/** An object whose members are all there: a program that looks for a key finds it only with a value. */
export function withoutUndefined(members: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

function truncationOf({ output, archivedAs }: CallResult): Record<string, unknown> {
  const { original, retained, omitted } = output;
  return withoutUndefined({
    original,
    retained,
    omitted,
    read_output_session_id: archivedAs ?? undefined,
  });
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
