import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { ExitStatus } from "../../src/exec/exec-process.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { ErrorCode, RequestError } from "../../src/protocol/errors.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { resolveSandbox } from "../../src/sandbox/resolve-sandbox.ts";
import { noSandbox, scratch } from "./sandbox-fixture.ts";

type Json = Record<string, unknown>;

/** A recorded request of the Codex client with another workspace. */
function recorded(name: string, workspace: string): Json {
  const path = new URL(`../fixtures/sandbox/codex-0.166.0-${name}.json`, import.meta.url);
  const text = readFileSync(path, "utf8").replaceAll("file:///srv/workspace", uriFromPath(workspace));
  return JSON.parse(text).sandbox;
}

function sandboxRequest(entries: Json[], workspace: string, network = "restricted"): Json {
  return {
    permissions: { type: "managed", file_system: { type: "restricted", entries }, network },
    workspaceRoots: [uriFromPath(workspace)],
    windowsSandboxLevel: "disabled",
  };
}

const READ_ROOT = { path: { type: "special", value: { kind: "root" } }, access: "read" };
const entryFor = (path: string, access: string, more: Json = {}) => ({
  path: { type: "path", path: uriFromPath(path) },
  access,
  ...more,
});

async function run(sandbox: unknown, script: string, cwd: string, more: { arg0?: string } = {}) {
  await using backend = createLocalBackend({ resolveSandbox });
  const process = await backend.start({
    processId: randomUUID(),
    argv: ["/bin/bash", "-c", script],
    cwd: uriFromPath(cwd),
    env: { PATH: "/usr/bin:/bin" },
    tty: false,
    sandbox,
    ...more,
  });
  let output = "";
  let exit: ExitStatus | null = null;
  for await (const event of process.events()) {
    if (event.type === "output") output += new TextDecoder().decode(event.chunk);
    if (event.type === "exited") exit = event;
  }
  assert.ok(exit);
  return { output, exitCode: exit.exitCode, denied: exit.sandboxDenied, sandboxType: process.sandboxType };
}

/** Outside of /tmp, which the Codex client's workspace-write mode makes writable. */
function workspace(): Disposable & { path: string } {
  const path = join("/var/tmp", `procwire-ws-${randomUUID()}`);
  mkdirSync(path);
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true, maxRetries: 10 }) };
}

test("a sandbox in read-only mode denies a write and reports the denial", { skip: noSandbox }, async () => {
  using ws = workspace();
  const ran = await run(recorded("read-only", ws.path), "echo hi; touch file", ws.path);
  assert.equal(ran.sandboxType, "linuxSeccomp");
  assert.match(ran.output, /^hi\n.*Read-only file system/s);
  assert.deepEqual([ran.exitCode, ran.denied], [1, true]);
  assert.ok(!existsSync(join(ws.path, "file")));
});

test("a sandbox in read-only mode runs a reading command normally", { skip: noSandbox }, async () => {
  using ws = workspace();
  writeFileSync(join(ws.path, "file"), "content");
  const ran = await run(recorded("read-only", ws.path), "cat file; pwd; exit 3", ws.path);
  assert.deepEqual(ran, {
    output: `content${ws.path}\n`,
    exitCode: 3,
    denied: false,
    sandboxType: "linuxSeccomp",
  });
});

test("a sandbox in workspace-write mode makes only the workspace and /tmp writable", {
  skip: noSandbox,
}, async () => {
  using ws = workspace();
  using outside = workspace();
  using tmp = scratch();
  const script = `echo in >file && echo tmp >${tmp.path}/file && echo out >${outside.path}/file`;
  const ran = await run(recorded("workspace-write", ws.path), script, ws.path);
  assert.deepEqual([ran.exitCode, ran.denied], [1, true]);
  assert.equal(readFileSync(join(ws.path, "file"), "utf8"), "in\n");
  assert.equal(readFileSync(join(tmp.path, "file"), "utf8"), "tmp\n");
  assert.ok(!existsSync(join(outside.path, "file")));
});

test("a sandbox in workspace-write mode makes an existing .git read-only and lets a missing .codex be created", {
  skip: noSandbox,
}, async () => {
  using ws = workspace();
  mkdirSync(join(ws.path, ".git"));
  const script = "echo x >.git/config; rm -rf .git; mv .git .old; mkdir .codex && echo made; ls -A";
  const ran = await run(recorded("workspace-write", ws.path), script, ws.path);
  assert.match(ran.output, /made\n\.codex\n\.git\n$/);
  assert.ok(existsSync(join(ws.path, ".git")) && !existsSync(join(ws.path, ".git", "config")));
});

test("a sandbox makes a .git file of a worktree read-only", { skip: noSandbox }, async () => {
  using ws = workspace();
  writeFileSync(join(ws.path, ".git"), "gitdir: /elsewhere\n");
  const script = "exec 2>&1; cat .git; echo x >.git; rm -f .git; mv .git .old; echo over";
  const ran = await run(recorded("workspace-write", ws.path), script, ws.path);
  assert.match(ran.output, /^gitdir: \/elsewhere\n.*over\n$/s);
  assert.equal(readFileSync(join(ws.path, ".git"), "utf8"), "gitdir: /elsewhere\n");
});

test("a sandbox in workspace-write mode has no network unless the request enables it", {
  skip: noSandbox,
}, async () => {
  using ws = workspace();
  const interfaces = "cat /proc/net/dev | grep -c :";
  const off = await run(recorded("workspace-write", ws.path), interfaces, ws.path);
  assert.equal(off.output, "1\n", "only the sandbox's loopback");
  const own = readFileSync("/proc/self/net/dev", "utf8").match(/:/g)?.length;
  const on = await run(recorded("workspace-write-network", ws.path), interfaces, ws.path);
  assert.equal(on.output, `${own}\n`);
});

test("a request that disables the sandbox runs the command unsandboxed", async () => {
  using ws = workspace();
  const open = { permissions: { type: "disabled" }, windowsSandboxLevel: "disabled" };
  const ran = await run(open, "touch file; echo done", ws.path);
  assert.deepEqual([ran.output, ran.sandboxType], ["done\n", "none"]);
  assert.ok(existsSync(join(ws.path, "file")));
});

test("a sandbox resolves a workspace that is given through a link", { skip: noSandbox }, async () => {
  using ws = workspace();
  using elsewhere = workspace();
  const link = join(elsewhere.path, "link");
  symlinkSync(ws.path, link);
  const ran = await run(recorded("workspace-write", link), "echo through >file", link);
  assert.equal(ran.exitCode, 0, ran.output);
  assert.equal(readFileSync(join(ws.path, "file"), "utf8"), "through\n");
});

test("a sandbox hides denied directories and files", { skip: noSandbox }, async () => {
  using ws = workspace();
  mkdirSync(join(ws.path, "dir"));
  writeFileSync(join(ws.path, "dir", "inner"), "secret");
  writeFileSync(join(ws.path, "file"), "secret");
  const entries = [READ_ROOT, entryFor(join(ws.path, "dir"), "deny"), entryFor(join(ws.path, "file"), "none")];
  const ran = await run(sandboxRequest(entries, ws.path), "cat dir/inner file", ws.path);
  assert.doesNotMatch(ran.output, /secret/);
  assert.deepEqual([ran.exitCode, ran.denied], [1, true]);
});

test("a sandbox shows only the named paths without a root entry", { skip: noSandbox }, async () => {
  using ws = workspace();
  using other = workspace();
  const entries = [
    { path: { type: "special", value: { kind: "minimal" } }, access: "read" },
    { path: { type: "special", value: { kind: "project_roots" } }, access: "write" },
  ];
  const ran = await run(sandboxRequest(entries, ws.path), `echo ok >file; ls /var/tmp; ls ${other.path}`, ws.path);
  assert.equal(readFileSync(join(ws.path, "file"), "utf8"), "ok\n");
  assert.doesNotMatch(ran.output.split("\n")[0] ?? "", new RegExp(other.path.slice(-12)));
  assert.match(ran.output, /No such file or directory/);
});

test("a sandbox passes arg0 to the sandboxed command", { skip: noSandbox }, async () => {
  using ws = workspace();
  const ran = await run(recorded("read-only", ws.path), 'echo "$0"', ws.path, { arg0: "own name" });
  assert.equal(ran.output, "own name\n");
});

test("a sandbox rejects a protected link that a sandboxed command could replace", {
  skip: noSandbox,
}, async () => {
  using ws = workspace();
  using outside = workspace();
  const linked = join(ws.path, "linked");
  symlinkSync(outside.path, linked);
  const writable = { path: { type: "special", value: { kind: "project_roots" } }, access: "write" };
  const sandbox = sandboxRequest([READ_ROOT, writable, entryFor(linked, "read")], ws.path);
  await assert.rejects(
    resolveSandbox(sandbox, { argv: ["true"], cwd: ws.path, env: {} }),
    (error) =>
      error instanceof RequestError &&
      error.code === ErrorCode.invalidParams &&
      error.message ===
        `sandbox intent cannot be enforced on this executor: \`${linked}\` is a symbolic link, which a sandbox cannot keep read-only`,
  );
});

test("a sandbox prevents creating a missing protected path unless the entry has the behavior `skip`", {
  skip: noSandbox,
}, async () => {
  using ws = workspace();
  const writable = { path: { type: "special", value: { kind: "project_roots" } }, access: "write" };
  const missing = join(ws.path, "missing");
  const make = "mkdir missing; touch other";
  for (const access of ["read", "deny"]) {
    const ran = await run(sandboxRequest([READ_ROOT, writable, entryFor(missing, access)], ws.path), make, ws.path);
    assert.match(ran.output, /cannot create directory/);
    assert.ok(!existsSync(missing), "the mount point is removed");
  }
  const skipped = entryFor(missing, "read", { missing_path_behavior: "skip" });
  assert.equal((await run(sandboxRequest([READ_ROOT, writable, skipped], ws.path), make, ws.path)).output, "");
  assert.ok(existsSync(missing));
});

test("concurrent sandboxes of one workspace share mount points", {
  skip: noSandbox,
}, async () => {
  using ws = workspace();
  const protectedGit = sandboxRequest(
    [READ_ROOT, entryFor(ws.path, "write"), entryFor(join(ws.path, ".git"), "read")],
    ws.path,
  );
  const runSequence = async () => {
    for (let round = 0; round < 40; round++) {
      const ran = await run(protectedGit, "mkdir .git/x 2>/dev/null || echo refused", ws.path);
      assert.equal(ran.output, "refused\n");
    }
  };
  await Promise.all(Array.from({ length: 4 }, runSequence));
  assert.ok(!existsSync(join(ws.path, ".git")), "a mount point was left behind");
});

test("a sandbox passes exactly the requested environment to the command", { skip: noSandbox }, async () => {
  using ws = workspace();
  const env = { PATH: "/usr/bin:/bin", EMPTY: "", LINES: "a\nb", EQUALS: "a=b", LD_LIBRARY_PATH: "/nowhere" };
  await using backend = createLocalBackend({ resolveSandbox });
  for (const more of [{}, { PWD: "/elsewhere" }]) {
    const process = await backend.start({
      ...{ processId: randomUUID(), argv: ["/usr/bin/env", "-0"], cwd: ws.path, tty: false },
      env: { ...env, ...more },
      sandbox: recorded("read-only", ws.path),
    });
    await process.closed;
    const text = Buffer.from((await process.snapshot()).stdout).toString();
    const seen = text.split("\0").filter((line) => line !== "");
    assert.deepEqual(
      seen.sort(),
      Object.entries({ ...env, ...more })
        .map((pair) => pair.join("="))
        .sort(),
    );
  }
});

test("a sandbox rejects a NUL byte in the environment, which could add a bubblewrap option", {
  skip: noSandbox,
}, async () => {
  using ws = workspace();
  const start = { argv: ["true"], cwd: ws.path, env: { A: "b\0--bind\0/\0/" } };
  await assert.rejects(resolveSandbox(recorded("read-only", ws.path), start), /nul byte/);
});

test("a sandbox ignores a missing path that no sandboxed command can create", { skip: noSandbox }, async () => {
  using ws = workspace();
  const entries = [READ_ROOT, entryFor(join(ws.path, "nowhere"), "deny"), entryFor(join(ws.path, "nothing"), "write")];
  const ran = await run(sandboxRequest(entries, ws.path), "mkdir nothing nowhere", ws.path);
  assert.deepEqual([ran.exitCode, ran.denied], [1, true]);
});
