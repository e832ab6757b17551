import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import { toolDefinitions } from "../../../src/tools/calls/tool-definitions.ts";
import { noSandbox } from "../../sandbox/sandbox-fixture.ts";
import { FaultProxy } from "../../support/faults/fault-proxy.ts";
import { ENTRY } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";
import { startMcp } from "./start-mcp.ts";

/** Returns the session id of a running command from the text of a result. */
function sessionIn(text: string): number {
  const number = /Process running with session ID (\d+)/.exec(text)?.[1];
  assert.ok(number, text);
  return Number(number);
}

/** Behavior for every client, on any backend. The tests share one server and run concurrently. */
function testMcp(where: string, open: () => Promise<AsyncDisposable & { args: string[] }>): void {
  describe(where, { concurrency: 4, timeout: 600_000 }, () => {
    let host: Awaited<ReturnType<typeof open>>;
    let mcp: Awaited<ReturnType<typeof startMcp>>;
    before(async () => {
      host = await open();
      mcp = await startMcp(host.args);
    });
    after(async () => {
      await mcp[Symbol.asyncDispose]();
      await host[Symbol.asyncDispose]();
    });
    testClient((what, run) => void test(what, () => run(mcp)));
  });
}

type Behaves = (what: string, run: (mcp: Awaited<ReturnType<typeof startMcp>>) => Promise<void>) => void;

function testClient(behaves: Behaves): void {
  behaves("a client finds the tools, with the schemas models know", async ({ client }) => {
    const { tools } = await client.listTools();
    // handoff_to_user exists only if users can attach.
    const isAttachable = tools.some(({ name }) => name === "handoff_to_user");
    const { handoffToUser, ...always } = toolDefinitions;
    const offered = isAttachable ? { ...always, handoffToUser } : always;
    assert.deepEqual(
      tools.map(({ name, description, inputSchema }) => ({ name, description, parameters: inputSchema })),
      Object.values(offered).map((definition) => JSON.parse(JSON.stringify(definition))),
    );
    assert.equal(client.getServerVersion()?.name, "procwire");
  });

  behaves("tools have titles and annotations", async ({ client }) => {
    const { tools } = await client.listTools();
    for (const { name, title, annotations } of tools) {
      assert.ok(title, name);
      const looks = /^(wait_for|list_sessions|read_output|read_screen)$/.test(name);
      assert.equal(annotations?.readOnlyHint, looks, name);
      assert.equal(annotations?.destructiveHint, looks ? undefined : true, name);
    }
  });

  behaves("kill_session ends a session", async ({ call }) => {
    const cmd = 'trap "echo cleaned; exit 7" TERM; echo up; while :; do sleep 0.05; done';
    const session_id = sessionIn((await call("exec_command", { cmd, yield_time_ms: 250 })).text);
    await call("wait_for", { session_id, until: "pattern", pattern: "up" });
    const killed = await call("kill_session", { session_id });
    assert.match(killed.text, /Process exited with code 7\n.*cleaned\n$/s);
  });

  behaves("an invalid pattern is rejected immediately and quoted", async ({ call }) => {
    const session_id = sessionIn((await call("exec_command", { cmd: "sleep 60", yield_time_ms: 250 })).text);
    const { text, isError } = await call("wait_for", { session_id, until: "pattern", pattern: "a(b" });
    assert.ok(isError);
    assert.match(text, /^wait_for: invalid pattern `a\(b`: .*missing closing \)/);
    assert.doesNotMatch(text, /\(\?m\)/);
    await call("kill_session", { session_id, force: true });
  });

  behaves("a command runs and returns its text", async ({ call, directory }) => {
    const { text, isError } = await call("exec_command", { cmd: "pwd; exit 3" });
    assert.match(
      text,
      /^Chunk ID: .*\nWall time: .*\nProcess exited with code 3\nOriginal token count: \d+\nOutput:\n/,
    );
    assert.ok(text.endsWith(`${directory}\n`));
    assert.equal(isError, false);
  });

  behaves("a terminal continues between calls", async ({ call }) => {
    const cmd = 'while read -r word; do echo "<$word>"; done';
    const session_id = sessionIn((await call("exec_command", { cmd, tty: true, yield_time_ms: 250 })).text);
    await call("write_stdin", { session_id, chars: "hello\n" });
    const waited = await call("wait_for", { session_id, until: "pattern", pattern: "<hello>" });
    assert.match(waited.text, /Wait ended: matched "<hello>"/);
    assert.match((await call("list_sessions")).text, new RegExp(`^${session_id}: running`, "m"));
    assert.match((await call("read_screen", { session_id })).text, /\nhello\n<hello>\n?/);
    const ended = await call("write_stdin", { session_id, chars: "\u0004", yield_time_ms: 30_000 });
    assert.match(ended.text, /Process exited with code 0\n/);
  });

  behaves("invalid calls return errors and do not affect the server", async ({ client, call }) => {
    const missing = await call("exec_command", {});
    assert.deepEqual(missing, { text: "exec_command: missing argument `cmd`", isError: true });
    assert.deepEqual(await call("write_stdin", { session_id: 99 }), {
      text: "write_stdin failed: Unknown process id 99",
      isError: true,
    });
    await assert.rejects(client.callTool({ name: "no_such_tool" }), /unknown tool `no_such_tool`/);
    assert.match((await call("exec_command", { cmd: "echo fine" })).text, /fine\n$/);
  });

  behaves("progress is sent while a call waits", async ({ call }) => {
    const messages: string[] = [];
    const onprogress = ({ message }: { message?: string | undefined }) => void messages.push(message ?? "");
    const { text } = await call("exec_command", { cmd: "sleep 1.5", yield_time_ms: 30_000 }, { onprogress });
    assert.match(text, /exited with code 0/);
    assert.match(messages[0] ?? "", /^session \d+: running for 1 s, 0 bytes of output$/);
  });

  behaves("canceling a call ends the wait, but not the process", async ({ call, directory }) => {
    const controller = new AbortController();
    const cmd = "echo started; echo begun >begun; until [ -e go ]; do sleep 0.02; done; echo done";
    const cancelled = call("exec_command", { cmd, yield_time_ms: 30_000 }, { signal: controller.signal });
    const refused = assert.rejects(cancelled);
    await until("it has begun", () => existsSync(join(directory, "begun")));
    controller.abort();
    await refused;
    let session_id = 0;
    await until("it is listed", async () => {
      const listed = /^(\d+): running.*: echo started/m.exec((await call("list_sessions")).text);
      session_id = Number(listed?.[1] ?? 0);
      return session_id > 0;
    });
    writeFileSync(join(directory, "go"), "");
    const { text } = await call("wait_for", { session_id, until: "exit" });
    assert.match(text, /Process exited with code 0\n.*\nOutput:\nstarted\ndone\n$/s);
  });
}

testMcp("local", async () => ({ args: [], [Symbol.asyncDispose]: async () => undefined }));

/** A remote server behind a proxy that can cut the connection. */
async function openServer() {
  const server = new ExecServer(createLocalHost());
  const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
  const proxy = await FaultProxy.before(listening.url);
  return {
    args: ["--connect", proxy.url],
    proxy,
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await listening.close();
      await server.close();
    },
  };
}

testMcp("through a server", openServer);

test("through a server: a lost connection loses neither the output nor the end of a command", {
  timeout: 600_000,
}, async () => {
  await using host = await openServer();
  await using mcp = await startMcp(host.args);
  const { call, directory } = mcp;
  const cmd = "echo one; until [ -e go ]; do sleep 0.02; done; echo two";
  const started = await call("exec_command", { cmd, yield_time_ms: 250 });
  const session_id = sessionIn(started.text);
  const waiting = call("wait_for", { session_id, until: "exit" });
  host.proxy.cut({ reset: true });
  await until("it has connected again", () => host.proxy.connections > 1);
  writeFileSync(join(directory, "go"), "");
  const { text } = await waiting;
  assert.match(text, /Process exited with code 0\n/);
  assert.match(started.text + text, /one\n.*two\n$/s);
});

test("through a server: commands run in the server's directory by default", {
  timeout: 600_000,
}, async () => {
  await using host = await openServer();
  await using mcp = await startMcp([...host.args, "--cwd", "/proc"]);
  assert.match((await mcp.call("exec_command", { cmd: "pwd", login: false })).text, /\n\/proc\n$/);
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [ENTRY, "mcp", ...host.args],
    cwd: "/",
  });
  const client = new Client({ name: "test", version: "1" });
  await client.connect(transport);
  try {
    const { content } = await client.callTool({
      name: "exec_command",
      arguments: { cmd: "pwd", login: false },
    });
    assert.ok(content[0]?.type === "text" && content[0].text.endsWith(`\n${process.cwd()}\n`));
  } finally {
    await client.close();
  }
});

test("commands end with the client that started them", { timeout: 600_000 }, async () => {
  const mcp = await startMcp();
  const started = await mcp.call("exec_command", {
    cmd: 'echo "pid $$"; exec sleep 300',
    yield_time_ms: 250,
  });
  const args = { session_id: sessionIn(started.text), until: "pattern", pattern: "pid [0-9]+\\n" };
  const pid = Number(/matched "pid (\d+)/.exec((await mcp.call("wait_for", args)).text)?.[1]);
  const server = mcp.pid();
  assert.ok(isAlive(pid) && isAlive(server));
  await mcp[Symbol.asyncDispose]();
  await until("both are gone", () => !isAlive(pid) && !isAlive(server));
});

test("a client's commands run in the sandbox", { skip: noSandbox, timeout: 600_000 }, async () => {
  await using mcp = await startMcp(["--sandbox", "workspace-write"]);
  const inside = await mcp.call("exec_command", { cmd: "echo x >file && cat file" });
  assert.match(inside.text, /Output:\nx\n$/);
  const outside = await mcp.call("exec_command", { cmd: `echo x >${mcp.directory}-outside` });
  assert.match(outside.text, /exited with code 1\n.*Read-only file system/s);
});

test("rules decide which commands a client may run", { timeout: 600_000 }, async () => {
  const directory = mkdtempSync("/var/tmp/procwire-rules-");
  try {
    const rules = join(directory, "rules.toml");
    writeFileSync(rules, '[[rule]]\nprefix = ["echo"]\ndecision = "allow"\n');
    await using mcp = await startMcp(["--rules", rules]);
    assert.equal((await mcp.call("exec_command", { cmd: "echo fine" })).isError, false);
    const rejected = await mcp.call("exec_command", { cmd: "rm -rf nothing" });
    assert.deepEqual(rejected, {
      text: "exec_command refused: the rules require an approval, but approvals are disabled",
      isError: true,
    });
  } finally {
    rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
  }
});

test("rules do not allow a planted shell, sandboxed or not", {
  skip: noSandbox,
  timeout: 600_000,
}, async () => {
  const directory = mkdtempSync("/var/tmp/procwire-rules-");
  try {
    const rules = join(directory, "rules.toml");
    const allowed = '[[rule]]\nprefix = ["git"]\ndecision = "allow"\nunsandboxed = true\n';
    writeFileSync(rules, `default = "ask"\n${allowed}[[rule]]\nprefix = ["printf"]\ndecision = "allow"\n`);
    await using mcp = await startMcp(["--rules", rules, "--sandbox", "workspace-write"]);
    const planted = join(mcp.directory, "bash");
    writeFileSync(planted, `#!/bin/sh\n: >${directory}/escaped\n`, { mode: 0o755 });
    for (const shell of [planted, "./bash", `/bin/../${planted}`]) {
      for (const sandbox_permissions of ["require_escalated", "use_default"]) {
        const args = { cmd: "git status", shell, login: false, sandbox_permissions };
        const { text, isError } = await mcp.call("exec_command", args);
        assert.ok(isError, text);
        assert.match(text, /^exec_command refused: the rules do not cover the shell `.*\/bash`/);
      }
    }
    assert.ok(!existsSync(join(directory, "escaped")), "it ran outside of the sandbox");
    const unknown = await mcp.call("exec_command", { cmd: "git status", shell: "planted" });
    assert.equal(unknown.text, "exec_command: shell `planted` must be an absolute path");
    assert.equal((await mcp.call("exec_command", { cmd: "git --version", shell: "sh" })).isError, false);
  } finally {
    rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
  }
});

test("a refused program is also refused as a nested command", { timeout: 600_000 }, async () => {
  const directory = mkdtempSync("/var/tmp/procwire-rules-");
  try {
    const rules = join(directory, "rules.toml");
    writeFileSync(rules, 'default = "allow"\n[[rule]]\nprefix = ["rm"]\ndecision = "refuse"\n');
    await using mcp = await startMcp(["--rules", rules]);
    const victim = join(directory, "victim");
    writeFileSync(victim, "");
    const ways = ["rm V", "/bin/rm V", "env rm V", "bash -c 'rm V'", "A=1 rm V", "echo V | xargs rm", "echo rm V | sh"];
    for (const way of ways) {
      const { text, isError } = await mcp.call("exec_command", { cmd: way.replace("V", victim) });
      assert.ok(isError && text.startsWith("exec_command refused: the rules"), `${way}: ${text}`);
    }
    assert.ok(existsSync(victim));
    assert.equal((await mcp.call("exec_command", { cmd: "env ls" })).isError, false);
  } finally {
    rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
  }
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

test("a login profile that never ends delays only the first command", {
  timeout: 600_000,
}, async () => {
  await using mcp = await startMcp();
  writeFileSync(join(mcp.directory, ".bash_profile"), "while :; do sleep 60; done\n");
  const first = await mcp.call("exec_command", { cmd: "echo ran" });
  assert.match(first.text, /^Note: the profile of the login shell \/bin\/bash did not end within 10 s; /);
  assert.ok(first.text.endsWith("\nran\n") && !first.isError, first.text);
  const second = await mcp.call("exec_command", { cmd: "echo ran" });
  assert.doesNotMatch(second.text, /Note:/);
});
