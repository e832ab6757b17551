import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { test } from "node:test";
import { environmentInfo } from "../../src/environment/environment-info.ts";
import { localEnvironment } from "../../src/environment/environment-service.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";

const info = (env: NodeJS.ProcessEnv, more = {}) =>
  environmentInfo({ version: "1.2.3", env, cwd: "/work dir", ...more });

test("gives version, directories and system as URIs and names", () => {
  const told = info({ HOME: "/home/me", SHELL: "/bin/sh" });
  assert.equal(told.executorVersion, "1.2.3");
  assert.equal(told.cwd, "file:///work%20dir");
  assert.equal(told.userHomeDir, "file:///home/me");
  assert.deepEqual(told.prependPathDirs, []);
  assert.match(told.providerId ?? "", /^procwire:1\.2\.3:[a-z0-9]+-[a-z0-9]+$/);
  assert.equal(told.platformOs, process.platform === "darwin" ? "macos" : process.platform);
  assert.equal(info({}).userHomeDir, uriFromPath(homedir()));
});

test("the id is that of the version and stays", () => {
  assert.equal(info({}).providerId, info({ HOME: "/x" }).providerId);
  assert.notEqual(info({}).providerId, info({}, { version: "9" }).providerId);
});

test("temporary directories come from TMPDIR, else there is only the usual one", () => {
  const { temporaryDirectories, tempDir } = info({ TMPDIR: "/var/tmp" });
  assert.deepEqual([temporaryDirectories, tempDir], [["file:///var/tmp"], "file:///var/tmp"]);
  assert.deepEqual(info({ TMPDIR: "" }).temporaryDirectories, []);
  assert.equal(info({}).tempDir, "file:///tmp");
  assert.equal(info({ TMPDIR: "rel" }).tempDir, "file:///work%20dir/rel");
});

test("the shell is the user's own where clients know it and it is there", () => {
  assert.deepEqual(info({ SHELL: "/bin/sh" }).shell, { name: "sh", path: "/bin/sh" });
  for (const SHELL of ["/usr/bin/fish", "/no/such/bash", ""]) {
    const { name, path } = info({ SHELL }).shell;
    assert.ok(["bash", "sh"].includes(name), name);
    assert.ok(existsSync(path), path);
  }
});

test("capabilities claim only what works", () => {
  const on = Object.entries(info({}).capabilities ?? {}).filter(([, value]) => value);
  assert.deepEqual(on.map(([name]) => name).sort(), [
    "environmentConfigRead",
    "fileWriteStreaming",
    "fsWatchMissing",
    "httpHeaderEnvVars",
  ]);
});

test("reports what is degraded", () => {
  assert.deepEqual(info({}, { degraded: ["no terminals"] }).degraded, ["no terminals"]);
});

test("sandboxes are probed on the first request, and reported from then on", async () => {
  const environment = localEnvironment({ version: "1", sandboxes: async () => ["bubblewrap"] });
  assert.equal(environment.info().sandboxes, undefined);
  assert.deepEqual((await environment.describe()).sandboxes, ["bubblewrap"]);
  assert.deepEqual(environment.info().sandboxes, ["bubblewrap"]);
});

test("a host's environment is read once, on the first request", async () => {
  let asked = 0;
  const degraded = () => {
    asked++;
    return ["x"];
  };
  const environment = localEnvironment({ version: "1", degraded });
  assert.equal(asked, 0);
  assert.equal(environment.info(), environment.info());
  assert.equal(asked, 1);
  assert.deepEqual(await environment.discoverRoots({ roots: [] }), { roots: [] });
  await assert.rejects(environment.readConfig({ cwd: "file:///", configPaths: [], requirementsPaths: [] }), {
    code: -32602,
  });
  assert.ok("skills" in (await environment.discover({ cwd: "file:///" })));
});
