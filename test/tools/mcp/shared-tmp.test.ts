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
async function createSharedFile({ call }: Mcp): Promise<string> {
  const name = randomUUID();
  await call("exec_command", { cmd: `echo kept >/tmp/${name}`, login: false });
  const found = await call("exec_command", { cmd: `cat /tmp/${name}`, login: false });
  assert.ok(found.text.endsWith("\nkept\n"), found.text);
  const hostDirectory = readdirSync(tmpdir())
    .filter((entry) => entry.startsWith("procwire-tmp-"))
    .map((entry) => join(tmpdir(), entry))
    .find((path) => existsSync(join(path, "tmp", name)));
  assert.ok(hostDirectory, "no directory on the host has the file");
  return hostDirectory;
}

const SANDBOX_FLAGS = ["--sandbox", "workspace-write"];

describe("/tmp in the sandbox", { skip: noSandbox, timeout: 600_000 }, () => {
  test("persists until the MCP server ends, and is then removed", async () => {
    const mcp = await startMcp(SANDBOX_FLAGS);
    const hostDirectory = await createSharedFile(mcp);
    await mcp.call("exec_command", { cmd: "mkdir -p /tmp/a/b; chmod 0 /tmp/a/b", login: false });
    const pid = mcp.pid();
    await mcp[Symbol.asyncDispose]();
    await until("the server has ended", () => !existsSync(`/proc/${pid}`));
    assert.ok(!existsSync(hostDirectory));
  });

  test("is removed by the next MCP server if its own server was killed", async () => {
    await using killed = await startMcp(SANDBOX_FLAGS);
    const hostDirectory = await createSharedFile(killed);
    process.kill(killed.pid(), "SIGKILL");
    await until("it is gone", () => !existsSync(`/proc/${killed.pid()}`));
    await using next = await startMcp(SANDBOX_FLAGS);
    const own = await createSharedFile(next);
    await until("the directory of the killed server is removed", () => !existsSync(hostDirectory));
    assert.ok(existsSync(own));
  });

  test("on a remote server, is removed at the latest when the server ends", async () => {
    await using server = await serve();
    const mcp = await startMcp([...SANDBOX_FLAGS, "--connect", server.url]);
    const hostDirectory = await createSharedFile(mcp);
    await mcp[Symbol.asyncDispose]();
    server.child.kill("SIGTERM");
    await server.exited;
    assert.ok(!existsSync(hostDirectory));
  });

  test("is writable in a read-only sandbox, and a working directory below the host's /tmp is not", async () => {
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
