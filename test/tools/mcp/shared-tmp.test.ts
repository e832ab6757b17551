import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { noSandbox } from "../../sandbox/sandbox-fixture.ts";
import { serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";
import { startMcp } from "./start-mcp.ts";

/** /tmp in the sandbox of `procwire mcp --sandbox …`. */

type Mcp = Awaited<ReturnType<typeof startMcp>>;

/** Creates a file in /tmp with one command, finds it with another, and returns its path on the host. */
async function leaveAFile({ call }: Mcp): Promise<string> {
  const name = randomUUID();
  await call("exec_command", { cmd: `echo kept >/tmp/${name}`, login: false });
  const found = await call("exec_command", { cmd: `cat /tmp/${name}`, login: false });
  assert.ok(found.text.endsWith("\nkept\n"), found.text);
  const folder = readdirSync(tmpdir())
    .filter((entry) => entry.startsWith("procwire-tmp-"))
    .map((entry) => join(tmpdir(), entry))
    .find((path) => existsSync(join(path, "tmp", name)));
  assert.ok(folder, "no folder on the host has it");
  return folder;
}

const WALLED = ["--sandbox", "workspace-write"];

describe("/tmp in the sandbox", { skip: noSandbox, timeout: 600_000 }, () => {
  test("it lasts as long as the server, and is removed at its end", async () => {
    const mcp = await startMcp(WALLED);
    const folder = await leaveAFile(mcp);
    await mcp.call("exec_command", { cmd: "mkdir -p /tmp/a/b; chmod 0 /tmp/a/b", login: false });
    const pid = mcp.pid();
    await mcp[Symbol.asyncDispose]();
    await until("the server has ended", () => !existsSync(`/proc/${pid}`));
    assert.ok(!existsSync(folder));
  });

  test("the directory of a killed server is removed by the next one", async () => {
    await using killed = await startMcp(WALLED);
    const folder = await leaveAFile(killed);
    process.kill(killed.pid(), "SIGKILL");
    await until("it is gone", () => !existsSync(`/proc/${killed.pid()}`));
    await using next = await startMcp(WALLED);
    const own = await leaveAFile(next);
    await until("the folder of the killed one is gone", () => !existsSync(folder));
    assert.ok(existsSync(own));
  });

  test("on a server it lasts for the session", async () => {
    await using server = await serve();
    const mcp = await startMcp([...WALLED, "--connect", server.url]);
    const folder = await leaveAFile(mcp);
    await mcp[Symbol.asyncDispose]();
    server.child.kill("SIGTERM");
    await server.exited;
    assert.ok(!existsSync(folder));
  });

  test("a read-only sandbox works in a directory under /tmp and does not change it", async () => {
    const directory = realpathSync(mkdtempSync("/tmp/procwire-under-tmp-"));
    try {
      await using mcp = await startMcp(["--sandbox", "read-only", "--cwd", directory]);
      const { text } = await mcp.call("exec_command", {
        cmd: "pwd; touch here 2>&1; touch /tmp/there && ls /tmp",
      });
      assert.match(text, new RegExp(`\n${directory}\ntouch: .*Read-only file system\n`));
      assert.match(text, /\nthere\n/);
      assert.deepEqual(readdirSync(directory), []);
    } finally {
      rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
    }
  });
});
