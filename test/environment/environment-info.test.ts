import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { test } from "node:test";
import { environmentInfo } from "../../src/environment/environment-info.ts";
import { createEnvironmentService } from "../../src/environment/environment-service.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";

const info = (env: NodeJS.ProcessEnv, more = {}) =>
  environmentInfo({ version: "1.2.3", env, cwd: "/work dir", ...more });

test("reports version, directories and platform", () => {
  const described = info({ HOME: "/home/me", SHELL: "/bin/sh" });
  assert.equal(described.executorVersion, "1.2.3");
  assert.equal(described.cwd, "file:///work%20dir");
  assert.equal(described.userHomeDir, "file:///home/me");
  assert.deepEqual(described.prependPathDirs, []);
  assert.match(described.providerId ?? "", /^procwire:1\.2\.3:[a-z0-9]+-[a-z0-9]+$/);
  assert.equal(described.platformOs, process.platform === "darwin" ? "macos" : process.platform);
  assert.equal(info({}).userHomeDir, uriFromPath(homedir()));
});

test("derives a stable provider id from the version", () => {
  assert.equal(info({}).providerId, info({ HOME: "/x" }).providerId);
  assert.notEqual(info({}).providerId, info({}, { version: "9" }).providerId);
});

test("takes temporary directories from TMPDIR, otherwise /tmp", () => {
  const { temporaryDirectories, tempDir } = info({ TMPDIR: "/var/tmp" });
  assert.deepEqual([temporaryDirectories, tempDir], [["file:///var/tmp"], "file:///var/tmp"]);
  assert.deepEqual(info({ TMPDIR: "" }).temporaryDirectories, []);
  assert.equal(info({}).tempDir, "file:///tmp");
  assert.equal(info({ TMPDIR: "rel" }).tempDir, "file:///work%20dir/rel");
});

test("chooses the user's shell if clients support it and it exists", () => {
  assert.deepEqual(info({ SHELL: "/bin/sh" }).shell, { name: "sh", path: "/bin/sh" });
  for (const SHELL of ["/usr/bin/fish", "/no/such/bash", ""]) {
    const { name, path } = info({ SHELL }).shell;
    assert.ok(["bash", "sh"].includes(name), name);
    assert.ok(existsSync(path), path);
  }
});

test("sets only the flags of supported capabilities", () => {
  const on = Object.entries(info({}).capabilities ?? {}).filter(([, value]) => value);
  assert.deepEqual(on.map(([name]) => name).sort(), [
    "environmentConfigRead",
    "fileWriteStreaming",
    "fsWatchMissing",
    "httpHeaderEnvVars",
  ]);
});

test("reports degraded components", () => {
  assert.deepEqual(info({}, { degraded: ["no terminals"] }).degraded, ["no terminals"]);
});

test("probes sandboxes on the first request and reports them from then on", async () => {
  const environment = createEnvironmentService({ version: "1", sandboxes: async () => ["bubblewrap"] });
  assert.equal(environment.info().sandboxes, undefined);
  assert.deepEqual((await environment.describe()).sandboxes, ["bubblewrap"]);
  assert.deepEqual(environment.info().sandboxes, ["bubblewrap"]);
});

test("reads the host's environment once, on the first request", async () => {
  let calls = 0;
  const degraded = () => {
    calls++;
    return ["x"];
  };
  const environment = createEnvironmentService({ version: "1", degraded });
  assert.equal(calls, 0);
  assert.equal(environment.info(), environment.info());
  assert.equal(calls, 1);
  assert.deepEqual(await environment.discoverRoots({ roots: [] }), { roots: [] });
  await assert.rejects(environment.readConfig({ cwd: "file:///", configPaths: [], requirementsPaths: [] }), {
    code: -32602,
  });
  assert.ok("skills" in (await environment.discover({ cwd: "file:///" })));
});
