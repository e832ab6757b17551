import type { ToolDefinition } from "../tool.ts";
import { type ArgumentsOf, takes } from "./tool-schema.ts";

/**
 * What a model is told of each tool. The first two have exactly the arguments models know from Codex; the others are
 * procwire's own. The text is part of the product: it is all a model knows.
 */

const maxOutputTokens = {
  type: "number",
  description:
    "How many tokens of output to return at most. Defaults to 10000, which is also the most; the middle is left out beyond that.",
} as const;

const sessionId = { type: "number", description: "The number of the session." } as const;

export const execCommandSchema = takes(
  {
    cmd: { type: "string", description: "Shell command to run." },
    workdir: {
      type: "string",
      description: "Directory to run the command in. Defaults to the working directory of the task.",
    },
    shell: { type: "string", description: "Shell that runs the command. Defaults to the user's shell." },
    login: {
      type: "boolean",
      description:
        "Whether the command gets what the profile of a login shell sets up. By default it gets the variables, taken once; true runs a login shell of its own, with the profile's functions; false does without.",
    },
    tty: {
      type: "boolean",
      description:
        "Whether the command gets a terminal. Needed for whatever is to be typed into later. Defaults to false: plain pipes, no input.",
    },
    yield_time_ms: {
      type: "number",
      description:
        "How long to wait for the command to end before returning with what it has printed so far. Defaults to 10000; between 250 and 30000.",
    },
    max_output_tokens: maxOutputTokens,
    sandbox_permissions: {
      type: "string",
      enum: ["use_default", "require_escalated"],
      description:
        "Defaults to `use_default`. `require_escalated` asks to run the command outside of the sandbox.",
    },
    justification: {
      type: "string",
      description: "With `require_escalated`: the question to put to the user, in one sentence.",
    },
    prefix_rule: {
      type: "array",
      items: { type: "string" },
      description:
        'With `require_escalated`: the beginning of the command that may be allowed from now on, for example ["git", "pull"].',
    },
  },
  ["cmd"],
);
export type ExecCommandArguments = ArgumentsOf<typeof execCommandSchema>;

export const writeStdinSchema = takes(
  {
    session_id: { type: "number", description: "The number of a running session." },
    chars: {
      type: "string",
      description:
        "Text to write to its input, control characters included. Defaults to nothing: wait and look for output.",
    },
    yield_time_ms: {
      type: "number",
      description:
        "How long to wait before returning. With text 250 by default, at most 30000; without text between 5000 and 300000.",
    },
    max_output_tokens: maxOutputTokens,
  },
  ["session_id"],
);

export const waitForSchema = takes(
  {
    session_id: sessionId,
    until: {
      type: "string",
      enum: ["exit", "pattern", "port", "idle"],
      description:
        "What to wait for: the end of the command, text in its output, a TCP port that listens, or a time without output.",
    },
    pattern: {
      type: "string",
      description:
        "With `pattern`: a regular expression (RE2 syntax; ^ and $ stand at the ends of lines). Output since the last input counts, also what you have seen already.",
    },
    port: { type: "number", minimum: 1, maximum: 65535, description: "With `port`: its number." },
    idle_ms: {
      type: "number",
      minimum: 1,
      description: "With `idle`: for how long nothing must be printed. Defaults to 1000.",
    },
    timeout_ms: {
      type: "number",
      minimum: 0,
      description: "How long to wait at most. Defaults to 60000; at most 300000.",
    },
    max_output_tokens: maxOutputTokens,
  },
  ["session_id", "until"],
);
export type WaitForArguments = ArgumentsOf<typeof waitForSchema>;

export const killSessionSchema = takes(
  {
    session_id: sessionId,
    force: {
      type: "boolean",
      description: "Whether to kill it at once, without a chance to clean up. Defaults to false.",
    },
    max_output_tokens: maxOutputTokens,
  },
  ["session_id"],
);

export const listSessionsSchema = takes({}, []);

export const readOutputSchema = takes(
  {
    session_id: {
      type: "number",
      description: "The number of the session; also of one that has ended, for some time.",
    },
    offset: {
      type: "number",
      description: "Where to begin, in bytes. Negative: counted from the end. Defaults to 0.",
    },
    max_output_tokens: maxOutputTokens,
  },
  ["session_id"],
);

export const readScreenSchema = takes(
  { session_id: { type: "number", description: "The number of a session with a terminal." } },
  ["session_id"],
);

export const handOverSchema = takes(
  {
    session_id: { type: "number", description: "The number of a session with a terminal." },
    reason: { type: "string", description: "What the person is to do there, in one sentence." },
    timeout_ms: {
      type: "number",
      minimum: 0,
      description: "How long to wait for the person. Defaults to 300000; at most 3600000.",
    },
    max_output_tokens: maxOutputTokens,
  },
  ["session_id", "reason"],
);

export const definitions = {
  execCommand: {
    name: "exec_command",
    description:
      "Runs a shell command. Returns its output when it ends, or, when it takes longer, what it has printed so far and the number of a session that goes on.",
    parameters: execCommandSchema,
  },
  writeStdin: {
    name: "write_stdin",
    description:
      "Writes to the input of a running session, or only waits, and returns the output since the last call.",
    parameters: writeStdinSchema,
  },
  waitFor: {
    name: "wait_for",
    description:
      "Waits until something about a running session is true, and returns the output since the last call. Better than polling.",
    parameters: waitForSchema,
  },
  killSession: {
    name: "kill_session",
    description:
      "Ends a running session with everything it has started, and returns the output since the last call.",
    parameters: killSessionSchema,
  },
  listSessions: {
    name: "list_sessions",
    description: "Lists the sessions that are running, or have ended without you having seen their end.",
    parameters: listSessionsSchema,
  },
  readOutput: {
    name: "read_output",
    description:
      "Reads a range of everything a session has printed, for when the middle of its output was left out.",
    parameters: readOutputSchema,
  },
  readScreen: {
    name: "read_screen",
    description:
      "Shows the screen of a session with a terminal as a person would see it: the text and where the cursor is.",
    parameters: readScreenSchema,
  },
  handOver: {
    name: "hand_over",
    description:
      "Asks a person to take over the terminal of a session, for example to type a password that you must not know, and waits until they have handed it back.",
    parameters: handOverSchema,
  },
} as const satisfies Record<string, ToolDefinition>;
