/**
 * A user takes over the terminal of a model, types a password, and hands the terminal back. The password is stored
 * nowhere.
 */

import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import {
  answer,
  functionCall,
  type MockHandler,
  says,
  startMockResponses,
  toolOutputs,
} from "../support/models/mock-responses.ts";
import { ENTRY, startCli } from "../support/servers/run-cli.ts";
import { scratchDirectory, serve } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";
import { startMcp } from "../tools/mcp/start-mcp.ts";

const needsTerminals = {
  skip: skipUnless(loadAddon().type === "loaded", "terminals need the addon"),
  timeout: 600_000,
};

const PASSWORD = "correct-horse-battery";
/** Prompts for a password as many programs do, and prints only its length. */
const ASKS = `printf 'Password: '; stty -echo; IFS= read -r p; stty echo; echo; echo "length \${#p}"; read -r end`;

/** Acts as the user: attaches, types the password at the prompt, and detaches with the detach key. */
async function typePassword(attachCommand: string): Promise<string> {
  await using backend = createLocalBackend();
  const line = attachCommand.replace(/^procwire /, `${process.execPath} ${ENTRY} `);
  const terminal = await backend.start({
    processId: "user",
    argv: ["/bin/sh", "-c", `${line}; echo left`],
    cwd: "/",
    env: { PATH: process.env.PATH ?? "", TERM: "xterm" },
    tty: true,
  });
  const sees = async (pattern: string) => {
    const { reason } = await terminal.wait({ until: { type: "output", pattern }, timeoutMs: 60_000 });
    assert.equal(reason, "matched", pattern);
  };
  await sees("Password: ");
  await until("raw mode of the terminal", async () => (await terminal.snapshot()).tty?.canonical === false);
  await terminal.write(Buffer.from(`${PASSWORD}\r`));
  await sees("length");
  await terminal.write(Buffer.from("\x1d"));
  await sees("left");
  return Buffer.from((await terminal.snapshot()).terminal).toString();
}

/** Returns the contents of all files below a directory. */
function everythingBelow(directory: string): string {
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .map((name) => join(directory, name))
    .filter((path) => statSync(path).isFile())
    .map((path) => readFileSync(path, "latin1"))
    .join("\n");
}

/** Acts as the model: starts the command, hands off to the user until the user has driven, and finishes. */
const model: MockHandler = ({ body }) => {
  const outputs = toolOutputs(body);
  const last = outputs.at(-1) ?? "";
  if (outputs.length === 0)
    return answer(functionCall("c0", "exec_command", { cmd: ASKS, tty: true, yield_time_ms: 1000 }));
  const [, session] = /session ID (\d+)/.exec(outputs[0] ?? "") ?? [];
  if (!/User: drove/.test(last) && outputs.length < 20)
    return answer(
      functionCall(`c${outputs.length}`, "handoff_to_user", {
        session_id: Number(session),
        reason: "type the password",
        timeout_ms: 60_000,
      }),
    );
  return says("done");
};

async function execCase(
  args: string[],
  directory: string,
): Promise<{ everything: string; outputs: string[]; events: Record<string, unknown>[] }> {
  const mock = await startMockResponses(model);
  try {
    const run = startCli(["exec", "--json", "--dangerously-bypass-approvals-and-sandbox", ...args, "go"], {
      cwd: directory,
      env: { OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "k", PROCWIRE_HOME: join(directory, "home") },
    });
    const events = () =>
      run.stdout
        .split("\n")
        .slice(0, -1)
        .map((line): Record<string, unknown> => JSON.parse(line));
    const waiting = () =>
      events().find(({ type, waiting_for }) => type === "terminal.waiting" && waiting_for === "secret");
    await until("the wait for a secret is reported", () => waiting() !== undefined, run.ended);
    const { command } = Object(waiting()?.attach);
    const seen = await typePassword(String(command));
    const { code, stdout, stderr } = await run.ended;
    assert.equal(code, 0, stderr);
    const sentBodies = mock.requests.map(({ body }) => JSON.stringify(body));
    return {
      everything: [seen, stdout, stderr, ...sentBodies, everythingBelow(directory)].join("\n"),
      outputs: toolOutputs(mock.requests.at(-1)?.body ?? {}),
      events: events(),
    };
  } finally {
    await mock.close();
  }
}

function checkCase({ everything, outputs, events }: Awaited<ReturnType<typeof execCase>>): void {
  assert.ok(!everything.includes(PASSWORD), "the password was seen");
  assert.match(
    outputs[0] ?? "",
    /Waiting for: secret; a user can type it with `procwire attach --connect \S+ [a-z2-7]{12}`/,
  );
  assert.match(outputs.at(-1) ?? "", /User: drove this terminal since the last call and returned it/);
  assert.ok(outputs.some((output) => output.includes(`length ${PASSWORD.length}`)));
  const reported = events.filter(({ type }) => String(type).startsWith("terminal."));
  assert.deepEqual(reported.map(({ waiting_for, driver }) => waiting_for ?? driver).slice(0, 4), [
    "secret",
    "user",
    "user",
    "model",
  ]);
}

describe("a user at the terminal of a model", needsTerminals, () => {
  test("types a password that procwire exec does not store, on this machine", async () => {
    using scratch = scratchDirectory();
    checkCase(await execCase(["--attachable"], scratch.path));
  });

  test("types a password that procwire exec does not store, on a server with an audit log and a debug log", async () => {
    using scratch = scratchDirectory();
    const audit = join(scratch.path, "audit.jsonl");
    await using server = await serve("--audit", audit, "--log-level", "debug");
    const reported = await execCase(["--connect", server.url], scratch.path);
    checkCase(reported);
    const writes = readFileSync(audit, "utf8")
      .split("\n")
      .filter((line) => line.includes('"event":"process/write"'))
      .map((line) => JSON.parse(line));
    assert.equal(
      writes.reduce((sum, { bytes }) => sum + bytes, 0),
      PASSWORD.length + 1,
    );
    assert.ok(!server.stderr.includes(PASSWORD));
  });

  test("types a password that procwire mcp does not store", async () => {
    await using mcp = await startMcp(["--attachable"]);
    const started = await mcp.client.callTool({
      name: "exec_command",
      arguments: { cmd: ASKS, tty: true, yield_time_ms: 2000 },
    });
    const facts = Object(started.structuredContent);
    assert.equal(facts.waiting_for, "secret");
    const seen = await typePassword(facts.attach.command);
    const after = await mcp.client.callTool({
      name: "write_stdin",
      arguments: { session_id: facts.session_id, chars: "end\r", yield_time_ms: 20_000 },
    });
    const reported = Object(after.structuredContent);
    assert.equal(reported.user, "returned");
    assert.equal(reported.exit_code, 0);
    assert.match(reported.output, new RegExp(`length ${PASSWORD.length}`));
    assert.ok(![JSON.stringify(started), JSON.stringify(after), seen].join("").includes(PASSWORD));
    assert.ok(!everythingBelow(mcp.directory).includes(PASSWORD));
  });
});
