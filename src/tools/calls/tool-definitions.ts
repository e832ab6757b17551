import type { ToolDefinition } from "../tool.ts";
import { type ArgumentsOf, objectSchema } from "./tool-schema.ts";

/**
 * The tool definitions that a model sees. The first two have exactly the arguments of Codex; the others are additions of
 * procwire. The texts are part of the product, because a model has no other information.
 */

const maxOutputTokens = {
  type: "number",
  description:
    "Maximum tokens of output to return. Defaults to 10000, which is also the maximum; the middle of longer output is omitted.",
} as const;

const sessionId = { type: "number", description: "Id of the session." } as const;

export const toolDefinitions = {
  execCommand: {
    name: "exec_command",
    description:
      "Runs a shell command. Returns its output when it ends. If it takes longer, returns the output so far and the id of a session that keeps running.",
    parameters: objectSchema(
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
            "Whether to apply the login profile. By default the command gets the profile's variables, read once; true runs a login shell for this command, with the profile's functions; false ignores the profile.",
        },
        tty: {
          type: "boolean",
          description:
            "Whether the command gets a terminal, which later input requires. Defaults to false: plain pipes, no input.",
        },
        yield_time_ms: {
          type: "number",
          description:
            "How long to wait for the command to end before returning its output so far. Defaults to 10000; between 250 and 30000.",
        },
        max_output_tokens: maxOutputTokens,
        sandbox_permissions: {
          type: "string",
          enum: ["use_default", "require_escalated"],
          description:
            "Defaults to `use_default`. `require_escalated` requests to run the command outside of the sandbox.",
        },
        justification: {
          type: "string",
          description: "With `require_escalated`: the question for the user, in one sentence.",
        },
        prefix_rule: {
          type: "array",
          items: { type: "string" },
          description:
            'With `require_escalated`: the command prefix that the user may allow from now on, for example ["git", "pull"].',
        },
      },
      ["cmd"],
    ),
  },
  writeStdin: {
    name: "write_stdin",
    description: "Writes to the input of a running session, or only waits. Returns the output since the last call.",
    parameters: objectSchema(
      {
        session_id: { type: "number", description: "Id of a running session." },
        chars: {
          type: "string",
          description:
            "Text to write to the input, including control characters. Defaults to empty: only wait for output.",
        },
        yield_time_ms: {
          type: "number",
          description:
            "How long to wait before returning. With text: defaults to 250, at most 30000. Without text: between 5000 and 300000.",
        },
        max_output_tokens: maxOutputTokens,
      },
      ["session_id"],
    ),
  },
  waitFor: {
    name: "wait_for",
    description:
      "Waits for a condition of a running session. Returns the output since the last call. Prefer it to polling.",
    parameters: objectSchema(
      {
        session_id: sessionId,
        until: {
          type: "string",
          enum: ["exit", "pattern", "port", "idle"],
          description:
            "Condition to wait for: the end of the command, text in its output, a listening TCP port, or a period without output.",
        },
        pattern: {
          type: "string",
          description:
            "With `pattern`: a regular expression (RE2 syntax; ^ and $ match at line boundaries). It is matched against all output since the last input, including output already returned.",
        },
        port: { type: "number", minimum: 1, maximum: 65535, description: "With `port`: the port number." },
        idle_ms: {
          type: "number",
          minimum: 1,
          description: "With `idle`: the required period without output. Defaults to 1000.",
        },
        timeout_ms: {
          type: "number",
          minimum: 0,
          description: "Maximum time to wait. Defaults to 60000; at most 300000.",
        },
        max_output_tokens: maxOutputTokens,
      },
      ["session_id", "until"],
    ),
  },
  killSession: {
    name: "kill_session",
    description: "Ends a running session and all processes that it started. Returns the output since the last call.",
    parameters: objectSchema(
      {
        session_id: sessionId,
        force: {
          type: "boolean",
          description: "Whether to kill the session immediately, without a grace period. Defaults to false.",
        },
        max_output_tokens: maxOutputTokens,
      },
      ["session_id"],
    ),
  },
  listSessions: {
    name: "list_sessions",
    description: "Lists running sessions and ended sessions whose end was not returned yet.",
    parameters: objectSchema({}, []),
  },
  readOutput: {
    name: "read_output",
    description: "Reads a range of the complete output of a session, for example after the middle was omitted.",
    parameters: objectSchema(
      {
        session_id: {
          type: "number",
          description: "Id of a running or recently ended session.",
        },
        offset: {
          type: "number",
          description: "Start position in bytes; negative values count from the end. Defaults to 0.",
        },
        max_output_tokens: maxOutputTokens,
      },
      ["session_id"],
    ),
  },
  readScreen: {
    name: "read_screen",
    description: "Returns the screen of a session with a terminal as a user would see it: text and cursor position.",
    parameters: objectSchema({ session_id: { type: "number", description: "Id of a session with a terminal." } }, [
      "session_id",
    ]),
  },
  handoffToUser: {
    name: "handoff_to_user",
    description:
      "Asks a user to take over the terminal of a session, for example to type a password that you must not know. Waits until the user returns the terminal.",
    parameters: objectSchema(
      {
        session_id: { type: "number", description: "Id of a session with a terminal." },
        reason: { type: "string", description: "What the user should do in the terminal, in one sentence." },
        timeout_ms: {
          type: "number",
          minimum: 0,
          description: "Maximum time to wait for the user. Defaults to 300000; at most 3600000.",
        },
        max_output_tokens: maxOutputTokens,
      },
      ["session_id", "reason"],
    ),
  },
} as const satisfies Record<string, ToolDefinition>;

const { execCommand } = toolDefinitions;

/** Definition of exec_command with a managed network: one argument more than in Codex. */
export const execCommandWithNetwork = {
  ...execCommand,
  parameters: objectSchema(
    {
      ...execCommand.parameters.properties,
      network: {
        type: "array",
        items: { type: "string" },
        description:
          'Narrows the network of this command, for example ["allow:registry.example"], ["deny:*.example.org"] or ["off"]. Never allows more than the configured policy.',
      },
    },
    ["cmd"],
  ),
} as const satisfies ToolDefinition;

export type ExecCommandArguments = ArgumentsOf<(typeof toolDefinitions)["execCommand"]["parameters"]>;
export type WaitForArguments = ArgumentsOf<(typeof toolDefinitions)["waitFor"]["parameters"]>;
