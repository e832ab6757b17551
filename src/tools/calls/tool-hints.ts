/** What an MCP client may show of a tool, and whether it may call it unasked. */
export interface ToolHints {
  title: string;
  annotations: {
    readOnlyHint: boolean;
    destructiveHint?: boolean;
    idempotentHint?: boolean;
    openWorldHint: boolean;
  };
}

const LOOKS = { readOnlyHint: true, openWorldHint: false };
/** A command can do anything, and reach anything the host can. */
const ACTS = { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true };

export const TOOL_HINTS: Readonly<Record<string, ToolHints>> = {
  exec_command: { title: "Run a command", annotations: ACTS },
  write_stdin: { title: "Type into a session", annotations: ACTS },
  wait_for: { title: "Wait for a session", annotations: LOOKS },
  kill_session: {
    title: "End a session",
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  },
  list_sessions: { title: "List sessions", annotations: LOOKS },
  read_output: { title: "Read earlier output", annotations: LOOKS },
  hand_over: { title: "Hand a terminal over to a person", annotations: ACTS },
  read_screen: { title: "Look at a screen", annotations: LOOKS },
};
