/** Display title of a tool for MCP clients, and hints whether to call it without confirmation. */
export interface ToolHints {
  title: string;
  annotations: {
    readOnlyHint: boolean;
    destructiveHint?: boolean;
    idempotentHint?: boolean;
    openWorldHint: boolean;
  };
}

const READ_ONLY = { readOnlyHint: true, openWorldHint: false };
/** A command can change anything that the host can reach. */
const DESTRUCTIVE = {
  readOnlyHint: false,
  destructiveHint: true,
  idempotentHint: false,
  openWorldHint: true,
};

export const TOOL_HINTS: Readonly<Record<string, ToolHints>> = {
  exec_command: { title: "Run a command", annotations: DESTRUCTIVE },
  write_stdin: { title: "Type into a session", annotations: DESTRUCTIVE },
  wait_for: { title: "Wait for a session", annotations: READ_ONLY },
  kill_session: {
    title: "End a session",
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  },
  list_sessions: { title: "List sessions", annotations: READ_ONLY },
  read_output: { title: "Read earlier output", annotations: READ_ONLY },
  handoff_to_user: { title: "Hand a terminal to the user", annotations: DESTRUCTIVE },
  read_screen: { title: "Read a screen", annotations: READ_ONLY },
};
