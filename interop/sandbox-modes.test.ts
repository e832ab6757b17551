import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createLocalHost } from "../src/host/local-host.ts";
import { ExecServer } from "../src/server/exec-server.ts";
import { listen } from "../src/server/listen/listen.ts";
import { noSandbox } from "../test/sandbox/sandbox-fixture.ts";
import { codexHome, noCodex, runCodex } from "./codex-run.ts";

async function openServer() {
  const server = new ExecServer(createLocalHost());
  const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
  return {
    url: listening.url,
    async [Symbol.asyncDispose]() {
      await listening.close();
      await server.close();
    },
  };
}

const command = (cmd: string) => ({ name: "exec_command", args: { cmd, login: false } });
const skip = noCodex || noSandbox;

test("the real CLI in workspace-write mode writes its workspace and nothing else", { skip }, async () => {
  using place = codexHome();
  await using server = await openServer();
  mkdirSync(join(place.workspace, ".git"));
  const outside = join(place.home, "outside");
  const ran = await runCodex(
    place,
    server.url,
    [
      command("echo in >file && cat file"),
      command(`echo out >${outside}`),
      command("echo hook >.git/hook"),
      command("grep -c : /proc/net/dev"),
    ],
    ["-s", "workspace-write"],
  );
  assert.equal(ran.exitCode, 0, ran.stderr);
  const [inside, denied, git, network] = ran.outputs;
  assert.match(inside ?? "", /Process exited with code 0\n.*Output:\nin\n/s);
  for (const refused of [denied, git]) assert.match(refused ?? "", /Read-only file system/);
  assert.match(network ?? "", /Output:\n1\n/, "only its own loopback");
  assert.equal(readFileSync(join(place.workspace, "file"), "utf8"), "in\n");
  assert.ok(!existsSync(outside) && !existsSync(join(place.workspace, ".git", "hook")));
});

test("the real CLI in read-only mode, its default, reads and writes nothing", { skip }, async () => {
  for (const flags of [["-s", "read-only"], []]) {
    using place = codexHome();
    await using server = await openServer();
    const calls = [command("ls -d ."), command("echo x >file"), command(`echo x >/tmp/${process.pid}-probe`)];
    const ran = await runCodex(place, server.url, calls, flags);
    assert.equal(ran.exitCode, 0, ran.stderr);
    assert.match(ran.outputs[0] ?? "", /Process exited with code 0\n.*Output:\n\.\n/s);
    assert.match(ran.outputs[1] ?? "", /Read-only file system/);
    assert.match(ran.outputs[2] ?? "", /Read-only file system/);
    assert.ok(!existsSync(join(place.workspace, "file")));
  }
});

test("the real CLI patches files within its sandbox and not outside of it", { skip }, async () => {
  using place = codexHome();
  await using server = await openServer();
  const patch = (path: string) =>
    command(`apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: ${path}\n+patched\n*** End Patch\nEOF\n`);
  const outside = join(place.home, "outside.txt");
  const ran = await runCodex(place, server.url, [patch("inside.txt"), patch(outside)], ["-s", "workspace-write"]);
  assert.equal(ran.exitCode, 0, ran.stderr);
  assert.equal(readFileSync(join(place.workspace, "inside.txt"), "utf8"), "patched\n", ran.outputs.join("\n"));
  assert.ok(!existsSync(outside), ran.outputs.join("\n"));
});
