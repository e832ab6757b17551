import assert from "node:assert/strict";
import { chownSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { openHostPool } from "../../src/cli/options/host-options.ts";
import { noSandbox, scratch } from "../sandbox/sandbox-fixture.ts";
import { PROCWIRE, ServeChild } from "../support/servers/serve.ts";
import { commandAs, USERS, type User } from "../support/system/users.ts";
import { startHttpWith } from "../tools/mcp/http-mcp.ts";
import { type Message, RawHttpClient } from "../tools/mcp/raw-http-client.ts";
import { skipFor } from "./inside.ts";

/** A sandboxed command cannot approve its own escalation through the MCP server that runs it. */

const SECOND_CLIENT = fileURLToPath(new URL("./second-client.ts", import.meta.url));
const TOKEN = "t".repeat(40);

/** Why the tests cannot run as this user, or false. A sandboxed command has its own /tmp, so it cannot run programs there. */
function skipReason(user: User): string | false {
  const isHidden = SECOND_CLIENT.startsWith("/tmp/");
  if (isHidden && process.env.CI) throw new Error("these tests cannot run in a checkout below /tmp");
  return isHidden ? "SKIPPED: this checkout is below /tmp" : skipFor(user);
}

interface Files extends Disposable {
  home: string;
  workspace: string;
  /** The server's token, in a directory without other files. */
  tokenFile: string;
  /** A copy of the token in a file that procwire does not mask. */
  stolen: string;
  /** Only an unsandboxed command can create it. */
  marker: string;
}

function files({ uid }: User): Files {
  const home = realpathSync(mkdtempSync("/var/tmp/procwire-approvals-"));
  const workspace = join(home, "workspace");
  const secrets = join(home, "secrets");
  const tokenFile = join(secrets, "token");
  const stolen = join(workspace, "stolen");
  for (const path of [workspace, secrets]) mkdirSync(path);
  for (const path of [tokenFile, stolen]) writeFileSync(path, TOKEN, { mode: 0o600 });
  for (const path of [home, workspace, secrets, tokenFile, stolen]) chownSync(path, uid, uid);
  return {
    ...{ home, workspace, tokenFile, stolen },
    marker: join(home, "escaped"),
    [Symbol.dispose]: () => rmSync(home, { recursive: true, force: true, maxRetries: 10 }),
  };
}

function startAs(user: User, { home, workspace }: Files, ...args: string[]): Promise<ServeChild> {
  const [program = PROCWIRE, ...rest] = [...commandAs(user), PROCWIRE];
  const sandbox = ["--sandbox", "workspace-write", "--network", "on", "--cwd", workspace];
  return startHttpWith([program, ...rest], ["--ask", ...sandbox, ...args], { env: { HOME: home } });
}

/** Runs a sandboxed command for this client, declines every approval prompt, and returns the output. */
async function run(client: RawHttpClient, cmd: string): Promise<string> {
  const call = await client.request("tools/call", {
    name: "exec_command",
    arguments: { cmd, login: false, yield_time_ms: 30_000 },
  });
  for (;;) {
    const message = await client.next(call, () => true);
    if (message.method === undefined) return textOf(message);
    await client.reply(message.id, { action: "decline" });
  }
}

function textOf({ result }: Message): string {
  const content = result?.content;
  assert.ok(Array.isArray(content));
  return String(content[0]?.text);
}

const secondClient = (server: ServeChild, { marker }: Files, ...more: string[]) =>
  `${process.execPath} ${SECOND_CLIENT} ${[server.url, `'touch ${marker}'`, ...more].join(" ")} 2>&1`;

/** Asserts that an unsandboxed client can connect while a sandboxed process with network access runs. */
async function assertUnsandboxedConnects(client: RawHttpClient, url: string, token?: string): Promise<void> {
  const left = { cmd: "sleep 60", login: false, yield_time_ms: 250 };
  const running = await client.request("tools/call", { name: "exec_command", arguments: left });
  assert.match(textOf(await client.answer(running)), /running with session ID/);
  assert.match(await run(await RawHttpClient.connect(url, token), "echo here"), /\nhere\n$/);
}

for (const attachable of [false, true]) {
  test(`a sandboxed command of the local tools cannot read the token file${attachable ? ", attachable" : ""}`, {
    skip: noSandbox,
  }, async () => {
    using directory = scratch();
    mkdirSync(join(directory.path, "secrets"));
    const paths = ["secrets/token", "secrets/secret", "open"].map((name) => join(directory.path, name));
    for (const path of paths) writeFileSync(path, "content");
    const [tokenFile, secretFile = ""] = paths;
    await using hosts = await openHostPool({
      ...{ connect: [], cwd: directory.path, sandbox: "workspace-write", attachable },
      values: { "token-file": tokenFile },
      secretFlags: { [secretFile]: "--ws-token-file" },
      secretFilter: {},
    });
    const { tools, close } = await hosts.openTools();
    const tool = tools.find(({ definition }) => definition.name === "exec_command");
    for (const path of paths) {
      const output = await tool?.call({ cmd: `cat ${path}`, login: false });
      assert.equal(output?.text.endsWith("\ncontent"), path.endsWith("open"), output?.text);
    }
    await close();
  });
}

for (const user of USERS) {
  for (const [how, more] of [
    ["", []],
    [" and its terminals can be attached to", ["--attachable"]],
  ] as const) {
    test(`a sandboxed command cannot approve its escalation if clients need no token${how}, as ${user.name}`, {
      skip: skipReason(user),
    }, async () => {
      using place = files(user);
      await using server = await startAs(user, place, "--ws-auth", "none", ...more);
      const client = await RawHttpClient.connect(server.url);
      const output = await run(client, secondClient(server, place));
      assert.ok(!existsSync(place.marker), output);
      assert.match(output, /HTTP status 403/);
      await assertUnsandboxedConnects(client, server.url);
    });
  }

  test(`a sandboxed command cannot approve its escalation with a stolen token, as ${user.name}`, {
    skip: skipReason(user),
  }, async () => {
    using place = files(user);
    const auth = ["--ws-auth", "capability-token", "--ws-token-file", place.tokenFile];
    await using server = await startAs(user, place, ...auth);
    const client = await RawHttpClient.connect(server.url, TOKEN);
    const read = await run(client, `cat ${place.tokenFile}`);
    assert.ok(!read.includes(TOKEN), "the token file can be read");
    const output = await run(client, secondClient(server, place, place.stolen));
    assert.ok(!existsSync(place.marker), output);
    assert.match(output, /HTTP status 403/);
    await assertUnsandboxedConnects(client, server.url, TOKEN);
  });
}

// An ordinary user cannot inspect processes of other users, so the server accepts only clients of the same user.
for (const user of USERS.filter(({ uid }) => uid === process.getuid?.())) {
  test(`a command that another server of this machine sandboxed cannot approve an escalation, as ${user.name}`, {
    skip: skipReason(user),
  }, async () => {
    using place = files(user);
    const [program = PROCWIRE, ...rest] = [...commandAs(user), PROCWIRE, "serve"];
    await using runner = await new ServeChild(["--listen", "ws://127.0.0.1:0"], {
      command: [program, ...rest],
      env: { HOME: place.home },
    }).listening();
    await using server = await startAs(user, place, "--ws-auth", "none", "--connect", runner.url);
    const client = await RawHttpClient.connect(server.url);
    const output = await run(client, secondClient(server, place));
    assert.ok(!existsSync(place.marker), output);
    assert.match(output, /HTTP status 403/);
  });
}
