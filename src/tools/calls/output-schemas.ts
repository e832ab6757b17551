import type { JsonSchema } from "../tool.ts";

/**
 * What the facts of each tool's answer are, as JSON Schema: for programs that read `structuredContent` instead of the text.
 * Names and meanings are those of the text. A call that was refused or failed has none.
 */

const integer = (description: string) => ({ type: "integer", description }) as const;
const text = (description: string) => ({ type: "string", description }) as const;
const flag = (description: string) => ({ type: "boolean", description }) as const;

/** On top of any answer. */
const NOTICE = {
  notice: text("Something to know about the host: it was restarted, or its login profile could not be used."),
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
      original: integer("Bytes the command has printed since the last call."),
      retained: integer("Bytes of them in `output`."),
      omitted: integer("Bytes left out of the middle."),
    },
    { read_output_session_id: integer("The session_id with which read_output reads what was left out.") },
  ),
  description: "Present when the middle of the output was left out.",
} as const;

/** Of every tool that answers how a session stands. */
const session = answer(
  {
    chunk_id: text("Names this answer."),
    wall_time_seconds: { type: "number", description: "How long the call took." },
    original_token_count: integer("Size of the whole output since the last call, in tokens of four bytes."),
    output: text("Output since the last call, standard error included."),
  },
  {
    exit_code: integer("Present when the command has ended; 128 + n after signal n."),
    signal: text("The signal that ended it, such as SIGKILL."),
    sandbox_denied: flag("True when the sandbox refused something the command tried."),
    session_id: integer("Present while the command goes on: the number to name in further calls."),
    failure: text("Why the command can no longer be followed; nobody knows how it ended."),
    wait: text("How a wait_for ended."),
    awaiting_input: {
      ...object({ secret: flag("True when what is typed is not shown, as with a password.") }),
      description: "Present when the program waits for something to be typed.",
    },
    waiting_for: {
      type: "string",
      enum: ["secret"],
      description:
        "Present when the program waits for a secret: echo is off. A person can type it, see `attach`.",
    },
    attach: {
      ...object({
        handle: text("The public name of the process."),
        command: text("What a person types in a shell to drive this terminal."),
      }),
      description: "With `waiting_for`: how a person gets to this terminal.",
    },
    person: {
      type: "string",
      enum: ["drives", "handed_back"],
      description: "Present when a person drives this terminal now, or has done so since the last call.",
    },
    truncation,
  },
);

const listed = object(
  {
    session_id: integer("The number to name in further calls."),
    state: text("running, exited with code N, failed, evicted or closed."),
    cmd: text("The shell command."),
    workdir: text("The directory it runs in."),
    tty: flag("Whether it has a terminal."),
    sandbox: { type: "string", enum: ["none", "bubblewrap"], description: "The walls around it." },
    age_seconds: integer("Seconds since its start."),
    quiet_seconds: integer("Seconds since its last output."),
    output_bytes: integer("Everything it has printed."),
  },
  { exit_code: integer("Present when it has ended.") },
);

const range = answer({
  offset: integer("Where `output` begins, in bytes from the start."),
  next_offset: integer("Where the next range begins."),
  original: integer("Everything the session has printed, in bytes."),
  retained: integer("Bytes of it that are kept."),
  omitted: integer("Bytes in the middle that were not kept."),
  output: text("The output in this range."),
});

const screen = answer({
  rows: integer("Height of the terminal."),
  cols: integer("Width of the terminal."),
  lines: {
    type: "array",
    items: { type: "string" },
    description: "One for each row, without trailing blanks.",
  },
  cursor: {
    ...object({ row: integer("From 0, at the top."), col: integer("From 0, at the left.") }),
    description: "Where the cursor stands.",
  },
  alternate: flag("Whether a full-screen program has the screen."),
  title: text("The title the program has set."),
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
  hand_over: session,
} as const satisfies Readonly<Record<string, JsonSchema>>;
