import type { JsonSchema } from "../tool.ts";

/**
 * JSON Schemas of the structured results, for programs that read `structuredContent` instead of the text. Names and
 * meanings match the text. Rejected and failed calls have no structured result.
 */

const integer = (description: string) => ({ type: "integer", description }) as const;
const text = (description: string) => ({ type: "string", description }) as const;
const flag = (description: string) => ({ type: "boolean", description }) as const;

/** Optional in every result. */
const NOTICE = {
  notice: text("Notice about the host, for example that it restarted or that its login profile failed."),
} as const;

function object(required: Record<string, JsonSchema>, optional: Record<string, JsonSchema> = {}) {
  return {
    type: "object",
    properties: { ...required, ...optional },
    required: Object.keys(required),
    additionalProperties: false,
  } as const;
}

const answer = (required: Record<string, JsonSchema>, optional: Record<string, JsonSchema> = {}) =>
  object(required, { ...optional, ...NOTICE });

const truncation = {
  ...object(
    {
      original: integer("Bytes printed since the last call."),
      retained: integer("Bytes included in `output`."),
      omitted: integer("Bytes omitted from the middle."),
    },
    { read_output_session_id: integer("The session_id for read_output, which returns the omitted bytes.") },
  ),
  description: "Present if the middle of the output was omitted.",
} as const;

/** Result of every tool that returns the state of an exec session. */
const session = answer(
  {
    chunk_id: text("Id of this result."),
    wall_time_seconds: { type: "number", description: "Duration of the call." },
    original_token_count: integer("Size of the whole output since the last call, in tokens of four bytes."),
    output: text("Output since the last call, standard error included."),
  },
  {
    exit_code: integer("Present if the command exited; 128 + n after signal n."),
    signal: text("The signal that ended the command, for example SIGKILL."),
    sandbox_denied: flag("True if the sandbox denied an operation of the command."),
    session_id: integer("Present while the command runs: the session_id for further calls."),
    failure: text("Why the server lost track of the command. Its exit status is unknown."),
    wait: text("How a wait_for ended."),
    awaiting_input: {
      ...object({ secret: flag("True if the terminal does not echo the input, as at a password prompt.") }),
      description: "Present if the program waits for input.",
    },
    waiting_for: {
      type: "string",
      enum: ["secret"],
      description: "Present if the program waits for a secret: echo is off. A user can type it, see `attach`.",
    },
    attach: {
      ...object({
        handle: text("The public handle of the process."),
        command: text("The shell command with which a user drives this terminal."),
      }),
      description: "With `waiting_for`: how a user attaches to this terminal.",
    },
    user: {
      type: "string",
      enum: ["driving", "returned"],
      description: "Present if a user drives this terminal now, or did since the last call.",
    },
    network_blocked: {
      type: "array",
      items: object({
        host: text("The requested host."),
        port: integer("The requested port."),
        protocol: text("http, https_connect or socks5_tcp."),
        reason: text("Reason of the network policy, for example not_allowed."),
        message: text("The reason as a sentence."),
        count: integer("Number of blocked requests."),
      }),
      description: "Present if the network policy blocked requests since the last call.",
    },
    network_waiting: {
      type: "array",
      items: { type: "string" },
      description: "Present while the command waits for a user's approval of these hosts and ports.",
    },
    truncation,
  },
);

const listed = object(
  {
    session_id: integer("The session_id for further calls."),
    state: text("running, exited with code N, failed, evicted or closed."),
    cmd: text("The shell command."),
    workdir: text("The working directory."),
    tty: flag("Whether the session has a terminal."),
    sandbox: { type: "string", enum: ["none", "bubblewrap"], description: "The sandbox of the command." },
    age_seconds: integer("Seconds since the start."),
    quiet_seconds: integer("Seconds since the last output."),
    output_bytes: integer("Total bytes of output."),
  },
  { exit_code: integer("Present if the command exited.") },
);

const range = answer({
  offset: integer("Position of `output` in bytes from the start."),
  next_offset: integer("Position of the next range."),
  original: integer("Total bytes of output of the session."),
  retained: integer("Bytes that are retained."),
  omitted: integer("Bytes in the middle that were not retained."),
  output: text("The output in this range."),
});

const screen = answer({
  rows: integer("Height of the terminal."),
  cols: integer("Width of the terminal."),
  lines: {
    type: "array",
    items: { type: "string" },
    description: "One line per row, without trailing blanks.",
  },
  cursor: {
    ...object({ row: integer("From 0, at the top."), col: integer("From 0, at the left.") }),
    description: "Position of the cursor.",
  },
  alternate: flag("Whether the alternate screen is active, as in full-screen programs."),
  title: text("The window title set by the program."),
});

export const OUTPUT_SCHEMAS = {
  exec_command: session,
  write_stdin: session,
  wait_for: session,
  kill_session: session,
  list_sessions: answer({
    sessions: { type: "array", items: listed, description: "Most recently used first." },
  }),
  read_output: range,
  read_screen: screen,
  handoff_to_user: session,
} as const satisfies Readonly<Record<string, JsonSchema>>;
