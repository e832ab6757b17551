import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { ExecServerClient } from "../../src/client/node/node-client.ts";
import type { ExecBackend } from "../../src/exec/exec-process.ts";
import { createLocalBackend } from "../../src/host/this-machine.ts";
import { availableSandboxes } from "../../src/sandbox/sandbox-probe.ts";
import { createUnifiedExec, type UnifiedExecOptions } from "../../src/tools/unified-exec.ts";
import { noWalls, scratch } from "../sandbox/sandbox-fixture.ts";
import { until } from "../support/system/until.ts";
import { call, fact, textOf } from "../tools/calls.ts";
import { attemptProgram, type Ground, wayOut } from "./inside.ts";

/** The commands of a model, behind the walls that procwire's own tools choose, on a server or on this machine. */
interface Model extends AsyncDisposable {
  run(cmd: string): Promise<{ output: string; text: string; exitCode: unknown; denied: unknown }>;
}

function model(backend: ExecBackend, cwd: string, more: Partial<UnifiedExecOptions> = {}): Model {
  const unified = createUnifiedExec({
    ...{ backend, cwd, hostSandboxes: ["bubblewrap"] },
    sandbox: { type: "bubblewrap", writableRoots: [cwd], network: false },
    ...more,
  });
  return {
    async run(cmd) {
      const output = await call(unified, "exec_command", { cmd, login: false });
      const text = output.ok ? textOf(output) : output.text;
      return {
        output: text,
        text: output.text,
        exitCode: fact(output, "exit_code"),
        denied: fact(output, "sandbox_denied"),
      };
    },
    [Symbol.asyncDispose]: () => unified.close(),
  };
}

/** The same way out on a server that runs as each user, and here. */
function toolsWayOut(
  title: string,
  body: (backend: ExecBackend, makeFolder: (name: string) => string) => Promise<void>,
): void {
  wayOut(`${title}, far away`, async (ground: Ground) => {
    await using client = await ExecServerClient.connectWebSocket({ url: ground.server.url });
    assert.deepEqual((await client.info()).sandboxes, availableSandboxes());
    await body(client.backend, (name) => ground.makeFolder(name));
  });
  for (const forceFallback of [false, true]) {
    test(`${title}, here ${forceFallback ? "without" : "with"} the addon`, { skip: noWalls }, async () => {
      using folder = scratch();
      await using backend = createLocalBackend({ forceFallback });
      await body(backend, (name) => {
        const path = join(folder.path, name);
        mkdirSync(path, { recursive: true });
        return path;
      });
    });
  }
}

toolsWayOut("a model's command makes no hook, and leaves no mount point", async (backend, makeFolder) => {
  const workspace = makeFolder("workspace");
  await using commands = model(backend, workspace);
  const made = await commands.run(
    "mkdir -p .git/hooks || mkdir .codex || ln -s /etc .agents; ls -A; echo x >file; false",
  );
  assert.equal(made.denied, true, made.text);
  await until("the mount points to be gone", () => readdirSync(workspace).join() === "file");
});

toolsWayOut("a model's command reaches no unix socket", async (backend, makeFolder) => {
  const workspace = makeFolder("workspace");
  const path = join(workspace, "agent.sock");
  const server = createServer((socket) => socket.end("secret")).listen(path);
  try {
    await until("listening", () => server.listening);
    chmodSync(path, 0o777);
    await using commands = model(backend, workspace);
    assert.equal((await commands.run(`${attemptProgram()} connect ${path}`)).output, "EPERM\n");
  } finally {
    server.close();
  }
});

toolsWayOut(
  "a program that a model's command has planted in the PATH does not run outside",
  async (backend, makeFolder) => {
    const workspace = makeFolder("workspace");
    const marker = join(makeFolder("outside"), "ran");
    await using commands = model(backend, workspace, { env: { PATH: `${workspace}:/usr/bin:/bin` } });
    const plant = ["env", "bwrap", "readlink", "sh"].map(
      (name) => `printf '#!/bin/sh\\n/usr/bin/touch ${marker}\\n' >${name}; /bin/chmod +x ${name}`,
    );
    assert.equal((await commands.run(plant.join("; "))).exitCode, 0);
    await commands.run("true");
    assert.ok(!existsSync(marker));
  },
);

toolsWayOut(
  "a root that a model's command has swapped for a link stays closed",
  async (backend, makeFolder) => {
    const outer = makeFolder("outer");
    const inner = makeFolder("outer/inner");
    const victim = makeFolder("victim");
    const roots = { type: "bubblewrap", writableRoots: [outer, inner], network: false } as const;
    await using commands = model(backend, outer, { sandbox: { ...roots, protectedNames: [] } });
    assert.equal((await commands.run(`mv ${inner} ${outer}/old && ln -s ${victim} ${inner}`)).exitCode, 0);
    const second = await commands.run(`echo x >${victim}/written`);
    assert.match(second.text, /sandbox intent cannot be enforced .*inner` leads to .*victim/);
    assert.deepEqual(readdirSync(victim), []);
  },
);

toolsWayOut(
  "a working directory below a private /tmp is seen, and cannot be written",
  async (backend, makeFolder) => {
    const folder = makeFolder("tmp-like");
    writeFileSync(join(folder, "file"), "content");
    await using commands = model(backend, folder, {
      sandbox: { type: "bubblewrap", writableRoots: [], network: false },
    });
    assert.equal((await commands.run("cat file; pwd")).output, `content${folder}\n`);
    assert.equal((await commands.run("echo x >file")).denied, true);
  },
);
