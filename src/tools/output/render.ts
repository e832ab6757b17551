import { omitUndefined } from "../../base/omit-undefined.ts";
import { type BlockedTargets, renderBlocked } from "../network/network-activity.ts";
import { type ShownOutput, tokensOf } from "./token-budget.ts";

/** Result of a tool call before it is rendered. */
export interface CallResult {
  chunkId: string;
  wallTimeMs: number;
  state:
    | { type: "exited"; exitCode: number; signal: string | null; sandboxDenied: boolean }
    | { type: "running"; sessionId: number }
    | { type: "failed"; sessionId: number; message: string };
  output: ShownOutput;
  /** Session id for `read_output`; null if the output is not archived. */
  archivedAs: number | null;
  /** Set if the terminal mode indicates that the program waits for input. */
  awaitingInput?: { secret: boolean } | undefined;
  /** How a user attaches to type a secret; absent if users cannot attach. */
  attach?: { handle: string; command: string } | undefined;
  /** Activity of a user at the terminal since the last call. */
  user?: "driving" | "returned" | undefined;
  /** How a `wait_for` ended, as text. */
  waited?: string | undefined;
  /** Network targets that were blocked since the last call. */
  blocked?: BlockedTargets | undefined;
  /** Network targets of open questions to the user. */
  awaitingApproval?: readonly string[] | undefined;
}

/** Renders one fact per line in the order of Codex. Additions of procwire directly precede the output. */
export function renderText(result: CallResult): string {
  const { output } = result;
  const lines = [
    `Chunk ID: ${result.chunkId}`,
    `Wall time: ${(result.wallTimeMs / 1000).toFixed(4)} seconds`,
    stateLine(result.state),
    `Original token count: ${tokensOf(output.original)}`,
  ];
  if (result.state.type === "exited" && result.state.sandboxDenied)
    lines.push("Sandbox: probably denied an operation, for example network access");
  if (result.waited !== undefined) lines.push(`Wait ended: ${result.waited}`);
  if (result.awaitingInput)
    lines.push(`Awaiting input: ${result.awaitingInput.secret ? "secret (echo is off)" : "yes"}`);
  if (result.attach) lines.push(`Waiting for: secret; a user can type it with \`${result.attach.command}\``);
  if (result.user) lines.push(`User: ${USER_ACTIVITY[result.user]}`);
  if (result.blocked) lines.push(...renderBlocked(result.blocked));
  for (const target of result.awaitingApproval ?? []) lines.push(`network: waiting for approval of ${target}`);
  if (output.omitted > 0 && result.archivedAs !== null)
    lines.push(`Omitted output: call read_output with session_id ${result.archivedAs}`);
  lines.push("Output:");
  if (output.omitted > 0) lines.push(...truncationLines(output));
  return `${lines.join("\n")}\n${output.text}`;
}

const USER_ACTIVITY = {
  driving: "drives this terminal now",
  returned: "drove this terminal since the last call and returned it",
} as const;

/** Renders the same facts as an object, with the names of Codex. */
export function renderStructured(result: CallResult): Record<string, unknown> {
  const { state, output } = result;
  const exited = state.type === "exited" ? state : null;
  return omitUndefined({
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
    user: result.user,
    network_blocked: result.blocked?.targets.length ? result.blocked.targets : undefined,
    network_waiting: result.awaitingApproval?.length ? result.awaitingApproval : undefined,
    truncation: output.omitted > 0 ? renderTruncation(result) : undefined,
    output: output.text,
  });
}

function renderTruncation({ output, archivedAs }: CallResult): Record<string, unknown> {
  const { original, retained, omitted } = output;
  return omitUndefined({
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
