/** Model calls and answers for `codex exec` and `procwire exec`, and the code that runs both programs. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  completed,
  created,
  failed,
  functionCall,
  inputItems,
  type MockAnswer,
  type MockHandler,
  message,
  startMockResponses,
} from "../test/support/models/mock-responses.ts";
import { PROCWIRE } from "../test/support/servers/serve.ts";
import { codexHome, configFor } from "./codex-run.ts";

export type Program = "codex" | "procwire";

export interface CallCase {
  name: string;
  /** Arguments of the call. `LAST` is replaced by the id of the last exec session that kept running. */
  args: Record<string, unknown> | string;
  /** Why the texts differ. */
  because?: string;
}

const exec = (cmd: string, more: Record<string, unknown> = {}, because?: string): CallCase => ({
  name: "exec_command",
  args: { cmd, login: false, ...more },
  ...(because === undefined ? {} : { because }),
});
const invalidCall = (args: string, because?: string): CallCase => ({
  name: "exec_command",
  args,
  ...(because === undefined ? {} : { because }),
});
const write = (args: Record<string, unknown>): CallCase => ({ name: "write_stdin", args });

export const CALLS: readonly CallCase[] = [
  exec("echo hi"),
  exec("exit 3"),
  exec("echo oops >&2; exit 127"),
  exec("kill -9 $$"),
  exec("printf '\\303\\050ok\\n'"),
  exec(""),
  exec("seq 1 30", { max_output_tokens: 5 }),
  exec("seq 1 3000", { max_output_tokens: 100 }),
  exec("printf 'nolf%.0s' $(seq 1 200)", { max_output_tokens: 20 }),
  exec("printf 'é%.0s' $(seq 1 50)", { max_output_tokens: 7 }),
  exec("seq 1 20", { max_output_tokens: 0 }),
  exec("seq 1 500000", { max_output_tokens: 500 }),
  exec("echo x", { bogus: 1 }),
  exec("sleep 1000", { yield_time_ms: 250 }),
  write({ session_id: "LAST", chars: "x" }),
  write({ session_id: "LAST", chars: "\u0003", yield_time_ms: 3000 }),
  exec("stty -echo; cat", { tty: true, yield_time_ms: 1000 }),
  write({ session_id: "LAST", chars: "hey\n", yield_time_ms: 1000 }),
  write({ session_id: "LAST", chars: "\u0004", yield_time_ms: 3000 }),
  write({ session_id: 99, chars: "x" }),
  write({ chars: "x" }),
  write({ session_id: "1" }),
  write({ session_id: 1.5 }),
  write({ session_id: 9_999_999_999 }),
  { name: "nosuch", args: {} },
  invalidCall("{}"),
  invalidCall(""),
  invalidCall("not json"),
  invalidCall('{"cmd":5}'),
  invalidCall('{"cmd":1.5}'),
  invalidCall('{"cmd":null}'),
  invalidCall('{"cmd":true}'),
  invalidCall('{"cmd":[1]}'),
  invalidCall('{"cmd":{"a":1}}'),
  invalidCall('{"cmd":"x"'),
  invalidCall('{"cmd":"x",}'),
  invalidCall('{"cmd":"x"} y'),
  invalidCall('{"cmd" "x"}'),
  invalidCall('{"cmd":"x","cmd":"y"}'),
  invalidCall('{\n "cmd": 5\n}'),
  invalidCall('{"cmd":"a\nb"}'),
  invalidCall("{cmd:1}"),
  invalidCall('{"cmd":tru}'),
  invalidCall('{"cmd":}'),
  invalidCall('{"cmd":"abc'),
  invalidCall('{"cmd":"\\q"}'),
  invalidCall('{"cmd":"x" "y":1}'),
  invalidCall('{"cmd":"x","login":1}'),
  invalidCall('{"cmd":"x","tty":null}'),
  invalidCall('{"cmd":"x","yield_time_ms":"abc"}'),
  invalidCall('{"cmd":"x","yield_time_ms":1.5}'),
  invalidCall('{"cmd":"x","yield_time_ms":-5}'),
  invalidCall('{"cmd":"x","yield_time_ms":null}'),
  invalidCall('{"cmd":"x","max_output_tokens":"1"}'),
  invalidCall('{"cmd":"x","prefix_rule":"x"}'),
  invalidCall('{"cmd":"x","prefix_rule":[1]}'),
  invalidCall('{"cmd":"x","sandbox_permissions":1}'),
  invalidCall('{"cmd":"é","tty":1}'),
  invalidCall("5", "Codex names a Rust type"),
  exec(
    "echo x",
    { sandbox_permissions: "bogus" },
    "procwire has no `with_additional_permissions`, so it does not offer it",
  ),
  exec("echo x", { workdir: "/no/such" }, "Codex wraps the reason in Rust type names"),
  exec("echo x", { shell: "/no/shell" }, "procwire runs only the requested shell"),
  exec(
    "echo x",
    { sandbox_permissions: "require_escalated" },
    "without a sandbox there is nothing to leave, so procwire asks for no approval",
  ),
];

export interface EventCase {
  what: string;
  model: MockHandler;
  /** The program is interrupted, as by Ctrl-C, once it has printed this text. */
  interruptOn?: string;
  because?: string;
}

const answer = (...events: object[]): MockAnswer => ({
  type: "sse",
  events: [created(), ...events, completed({ input: 10, output: 5, cached: 2 })],
});
const call = (id: string, cmd: string, more: Record<string, unknown> = {}) =>
  functionCall(id, "exec_command", { cmd, login: false, ...more });
const reasoning = {
  type: "response.output_item.done",
  item: {
    type: "reasoning",
    id: "r",
    summary: [{ type: "summary_text", text: "**Thinking** hard" }],
    encrypted_content: "x",
  },
};
/** Sends the answers in order, one per request, then a final message. */
const inTurn =
  (...answers: MockAnswer[]): MockHandler =>
  ({ index }) =>
    answers[index] ?? answer(message("done"));

export const EVENTS: readonly EventCase[] = [
  { what: "a message", model: inTurn() },
  { what: "a command", model: inTurn(answer(call("a", "echo hi"))) },
  { what: "a command that fails", model: inTurn(answer(call("a", "echo oops >&2; exit 3"))) },
  { what: "quotes", model: inTurn(answer(call("a", `printf '%s' "$HOME" | wc -c; echo \\$`))) },
  {
    what: "reasoning, a message and a command in one answer",
    model: inTurn(answer(reasoning, message("first"), call("a", "echo a"))),
  },
  {
    what: "a command that runs across several calls",
    model: ({ body }) => {
      const outputs = inputItems(body).filter(({ type }) => type === "function_call_output");
      const session_id = Number(/session ID (\d+)/.exec(String(outputs[0]?.output ?? ""))?.[1]);
      if (outputs.length === 0) return answer(call("a", "cat; exit 4", { tty: true, yield_time_ms: 1000 }));
      if (outputs.length === 1)
        return answer(functionCall("b", "write_stdin", { session_id, chars: "\u0004", yield_time_ms: 5000 }));
      return answer(message("done"));
    },
  },
  {
    what: "a command that still runs at the end",
    model: inTurn(answer(call("a", "sleep 1000", { yield_time_ms: 250 }))),
  },
  { what: "output of more than a megabyte", model: inTurn(answer(call("a", "seq 1 200000"))) },
  { what: "a call with mistaken arguments", model: inTurn(answer(functionCall("a", "exec_command", "{}"))) },
  {
    what: "a stream that breaks after a call",
    // Delayed until the command has exited, because the order of the two events is not guaranteed.
    model: inTurn({
      type: "cut",
      events: [created(), message("partial"), call("a", "echo early")],
      afterMs: 1500,
    }),
    because:
      "the reason in brackets is each program's own word for a cut connection, and retries are counted to 5 here",
  },
  {
    what: "a failed response",
    model: () => ({ type: "sse", events: [created(), failed("invalid_prompt", "nope")] }),
    because: "procwire names the code as well",
  },
  {
    what: "a refused request",
    model: () => ({ type: "status", status: 400, body: { error: { message: "bad request" } } }),
    because: "the original passes the whole body on, procwire says the status and the message in it",
  },
  {
    what: "a command in a login shell, the default",
    model: inTurn(answer(functionCall("a", "exec_command", { cmd: "echo hi" }))),
    because:
      "procwire takes the login environment once and then runs `bash -c`; the original starts a login shell each time",
  },
  {
    what: "a command whose directory is missing",
    model: inTurn(answer(call("a", "echo x", { workdir: "/no/such" }))),
    because: "Codex adds a prefix to the reason",
  },
  {
    what: "an interrupt during a command",
    model: inTurn(answer(call("a", "sleep 1000"))),
    interruptOn: "item.started",
  },
];

/** Returns the text that a model read after each call. */
export async function runCalls(program: Program): Promise<string[]> {
  const { requests } = await run(program, ({ body }) => {
    const outputs = outputsIn(body);
    const next = CALLS[outputs.length];
    if (!next) return answer(message("done"));
    const last = /session ID (\d+)/.exec(outputs.findLast((text) => text.includes("session ID")) ?? "")?.[1];
    const args = typeof next.args === "string" ? next.args : JSON.stringify(next.args).replace('"LAST"', last ?? "0");
    return answer(functionCall(`call-${outputs.length}`, next.name, args));
  });
  return outputsIn(requests.at(-1)?.body ?? {}).map(maskVariableParts);
}

/** Returns the lines that a program read. */
export async function runEvents(program: Program, { model, interruptOn }: EventCase): Promise<string[]> {
  const { stdout } = await run(program, model, interruptOn);
  return stdout
    .trim()
    .split("\n")
    .map((line): Record<string, unknown> => JSON.parse(line))
    .filter((event) => !JSON.stringify(event).includes("Model metadata for"))
    .map((event) => JSON.stringify(inOrder(event)));
}

async function run(program: Program, handler: MockHandler, interruptOn?: string) {
  using place = codexHome();
  const model = await startMockResponses(handler);
  try {
    if (program === "codex") writeFileSync(join(place.home, ".codex", "config.toml"), configFor(model.url));
    const [file, ...args] = program === "codex" ? CODEX : OURS;
    const child = spawn(file, [...args, "-C", place.workspace, "go"], {
      stdio: ["ignore", "pipe", "pipe"],
      timeout: RUN_TIMEOUT_MS,
      env: {
        PATH: process.env.PATH ?? "",
        HOME: place.home,
        CODEX_HOME: join(place.home, ".codex"),
        MODEL_KEY: "none",
        OPENAI_BASE_URL: model.url,
        OPENAI_API_KEY: "none",
      },
    });
    let stdout = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
      if (interruptOn !== undefined && stdout.includes(interruptOn)) child.kill("SIGINT");
    });
    child.stderr.resume();
    await once(child, "close");
    return { stdout, requests: model.requests };
  } finally {
    await model.close();
  }
}

const RUN_TIMEOUT_MS = 60_000;
const BYPASS = "--dangerously-bypass-approvals-and-sandbox";
const CODEX: [string, ...string[]] = [
  fileURLToPath(new URL("./node_modules/.bin/codex", import.meta.url)),
  ...["exec", "--json", "--skip-git-repo-check", BYPASS],
];
const OURS: [string, ...string[]] = [PROCWIRE, "exec", "--json", BYPASS];

function outputsIn(body: Record<string, unknown>): string[] {
  return inputItems(body).flatMap(({ type, output }) => (type === "function_call_output" ? [String(output)] : []));
}

function maskVariableParts(text: string): string {
  return text
    .replace(/^Chunk ID: .*$/m, "Chunk ID: …")
    .replace(/^Wall time: .*$/m, "Wall time: …")
    .replace(/^Process running with session ID \d+$/m, "Process running with session ID …")
    .replace(/^(Omitted output|Awaiting input): .*\n/gm, "");
}

/** Sorts keys and renumbers items, because Codex counts a warning as its first item. */
function inOrder(event: unknown): unknown {
  if (Array.isArray(event)) return event.map(inOrder);
  if (typeof event !== "object" || event === null) return event;
  return Object.fromEntries(
    Object.entries(event)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => [
        name,
        name === "id" || name === "thread_id" ? "…" : inOrder(name === "aggregated_output" ? sized(value) : value),
      ]),
  );
}

function sized(output: unknown): unknown {
  if (typeof output !== "string" || output.length < 10_000) return output;
  return `${output.slice(0, 60)}… ${output.length} …${output.slice(-30)}`;
}
