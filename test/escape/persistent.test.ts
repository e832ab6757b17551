/** A sandbox of a persistent process holds while no server runs, and below the next server. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ExecServerClient } from "../../src/client/exec-server-client.ts";
import type { ExecProcess } from "../../src/exec/exec-process.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { isAlive } from "../support/servers/serve.ts";
import { persistentParams, SupervisedServer } from "../support/servers/supervised-server.ts";
import { until } from "../support/system/until.ts";
import { at, type Fixture, intent, type Json, READ_ROOT, testEscape, WORKSPACE, workspaceWrite } from "./inside.ts";

const SUPERVISED = { serveArgs: () => ["--supervised"] };

/** Runs each line of its input as a command, and prints its output and status. */
const COMMANDS = 'while read -r line; do eval "$line" 2>&1; echo "status $? of $line"; done';

class SandboxedShell {
  readonly process: ExecProcess;
  #count = 0;

  constructor(process: ExecProcess) {
    this.process = process;
  }

  static async start(client: ExecServerClient, sandbox: Json, cwd: string): Promise<SandboxedShell> {
    return new SandboxedShell(await client.start(persistentParams("shell", COMMANDS, { sandbox, cwd })));
  }

  /** Returns output and exit status of one command. */
  async run(command: string): Promise<string> {
    const [start, end] = [`status 0 of : start ${this.#count}\n`, `status 0 of : end ${this.#count}\n`];
    await this.process.write(Buffer.from(`: start ${this.#count}\n${command}\n: end ${this.#count}\n`));
    this.#count++;
    await waitFor(this.process, end);
    const output = Buffer.from((await this.process.snapshot()).stdout).toString();
    return output.slice(output.indexOf(start) + start.length, output.indexOf(end));
  }
}

const tmpDirectories = () => readdirSync("/tmp").filter((name) => name.startsWith("procwire-tmp-"));

/** Replaces the server by a crash and by a hot restart, and runs `check` after each. */
async function withEachServer(
  fixture: Fixture,
  shell: SandboxedShell,
  check: (client: ExecServerClient) => Promise<void>,
  client: ExecServerClient,
): Promise<void> {
  const server = new SupervisedServer(fixture.server);
  for (const signal of ["SIGKILL", "SIGHUP"] as const) {
    const former = await server.serverPid([shell.process.pid]);
    process.kill(signal === "SIGKILL" ? former : server.supervisorPid, signal);
    await until("the former server to be gone", () => !isAlive(former));
    await client.list();
    await check(client);
  }
}

testEscape(
  "the sandbox of a persistent process keeps its roots, mount points and /tmp below the next server",
  async (fixture) => {
    const workspace = fixture.makeDirectory("work");
    const server = new SupervisedServer(fixture.server);
    await using client = await server.connect();
    const before = tmpDirectories();
    const roots = [READ_ROOT, WORKSPACE, at(join(workspace, ".git"), "read")];
    const sandbox = intent(roots, {
      cwd: uriFromPath(workspace),
      workspaceRoots: [uriFromPath(workspace)],
      privateTmp: true,
      sharedTmp: "t",
    });
    const shell = await SandboxedShell.start(client, sandbox, workspace);
    const check = async () => {
      assert.match(await shell.run("echo text >inside && cat inside"), /^text\nstatus 0/);
      assert.match(
        await shell.run(`echo text >${fixture.directory}/outside`),
        /Read-only file system[\s\S]*status [12]/,
      );
      assert.match(await shell.run("mkdir .git/hooks"), /status 1/);
      assert.match(await shell.run("rmdir .git"), /status 1/);
      assert.match(await shell.run("echo kept >>/tmp/file && cat /tmp/file"), /kept\nstatus 0/);
      assert.equal(existsSync(join(workspace, ".git")), true, "the mount point stays");
    };
    await check();
    const [tmp = ""] = tmpDirectories().filter((name) => !before.includes(name));
    assert.notEqual(tmp, "");
    let others = 0;
    await withEachServer(
      fixture,
      shell,
      async (restored) => {
        await check();
        // A later command of the session shares /tmp, and its end removes nothing.
        const params = { sandbox, cwd: workspace, lifetime: "session" } as const;
        const other = await restored.start(persistentParams(`other-${others++}`, "cat /tmp/file", params));
        await other.wait();
        assert.match(Buffer.from((await other.snapshot()).stdout).toString(), /^kept\n/);
        await check();
      },
      client,
    );
    await shell.process.closeStdin();
    const { exitCode } = await shell.process.wait();
    assert.equal(exitCode, 0);
    await until("the mount point to be removed", () => !existsSync(join(workspace, ".git")));
    assert.equal(tmpDirectories().includes(tmp), true, "the shared /tmp belongs to the session");
    await fixture.server.stop();
    assert.equal(tmpDirectories().includes(tmp), false);
  },
  SUPERVISED,
);

testEscape(
  "a persistent process with network access cannot connect to the next server either",
  async (fixture) => {
    const workspace = fixture.makeDirectory("work");
    const server = new SupervisedServer(fixture.server);
    await using client = await server.connect();
    const shell = await SandboxedShell.start(client, workspaceWrite(workspace, { network: "enabled" }), workspace);
    const { port } = new URL(fixture.server.url);
    const script = join(workspace, "ask");
    const request = "printf 'GET /readyz HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n'";
    writeFileSync(script, `exec 5<>/dev/tcp/127.0.0.1/${port}; ${request} >&5; head -n1 <&5`);
    // The same request from outside of the sandbox is accepted.
    assert.match(execFileSync("bash", [script], { encoding: "utf8" }), /^HTTP\/1.1 200/);
    const assertRejected = async () => assert.match(await shell.run(`bash ${script}`), /^HTTP\/1.1 403/);
    await assertRejected();
    await withEachServer(fixture, shell, assertRejected, client);
  },
  SUPERVISED,
);

testEscape(
  "a persistent process in a sandbox ends with its supervisor",
  async (fixture) => {
    const workspace = fixture.makeDirectory("work");
    const server = new SupervisedServer(fixture.server);
    await using client = await server.connect();
    const shell = await SandboxedShell.start(client, workspaceWrite(workspace), workspace);
    await shell.run("sleep 300 & setsid sleep 300 &");
    await server.killServer([shell.process.pid]);
    process.kill(server.supervisorPid, "SIGKILL");
    await fixture.server.exited;
    assert.equal(isAlive(shell.process.pid ?? 0), false);
  },
  SUPERVISED,
);
