/** The pip and apt recipes of docs/network.md, against servers in a network namespace. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { localSandboxes } from "../../../src/host/host-sandboxes.ts";
import { noTestNetwork, TestNetwork } from "../../support/network/test-network.ts";
import { pythonPath, writeWheel } from "../../support/network/tiny-packages.ts";
import { PROCWIRE } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";

const runs = (...[program = "", ...args]: string[]) => spawnSync(program, args, { stdio: "ignore" }).status === 0;
const noNetwork =
  noTestNetwork ||
  skipUnless(localSandboxes().includes("managed-network"), "the sandbox cannot enforce network rules here");
const [INDEX, FILES] = ["93.184.216.34", "93.184.216.35"];

/** A directory outside of /tmp, which is private in a sandbox. */
function makeDirectory(t: TestContext): string {
  const path = mkdtempSync(join(homedir(), "procwire-recipe-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Runs the shipped program in a network, with a policy. */
function runIn(network: TestNetwork, cwd: string, policy: string, script: string) {
  const [program = "", ...under] = [...network.command, "env", "-C", cwd, PROCWIRE, "run"];
  const args = ["--sandbox", "workspace-write", "--network", policy, "--", "/bin/bash", "-c", script];
  const env = { PATH: process.env.PATH, HOME: cwd };
  return spawnSync(program, [...under, ...args], { env, encoding: "utf8", timeout: 300_000 });
}

describe("the recipes of docs/network.md", { timeout: 600_000 }, () => {
  const noPip = noNetwork || skipUnless(runs("python3", "-m", "pip", "--version"), "pip is missing");
  test("pip installs a package from an allowed index and an allowed file host", { skip: noPip }, async (t) => {
    const root = makeDirectory(t);
    for (const directory of ["index/simple/tiny", "files"]) mkdirSync(join(root, directory), { recursive: true });
    const wheel = writeWheel(join(root, "files"));
    writeFileSync(join(root, "index/simple/tiny/index.html"), `<a href="http://files.test/${wheel}">${wheel}</a>`);
    await using network = await TestNetwork.open({
      names: { "index.test": [[INDEX]], "files.test": [[FILES]] },
      servers: [
        { address: INDEX, port: 80, root: join(root, "index") },
        { address: FILES, port: 80, root: join(root, "files") },
      ],
    });
    mkdirSync(join(root, "work"));
    const python = pythonPath();
    const script = `${python} -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 --target lib \\
      --index-url http://index.test/simple --trusted-host index.test --trusted-host files.test tiny 2>&1 &&
      PYTHONPATH=lib ${python} -c 'import tiny'`;
    const blocked = runIn(network, join(root, "work"), "allow:index.test", script);
    assert.notEqual(blocked.status, 0, blocked.stdout);
    assert.match(blocked.stderr, /network: blocked files\.test:80 \(not allowed\)/);
    const allowed = runIn(network, join(root, "work"), "allow:index.test,files.test", script);
    assert.deepEqual([allowed.status, allowed.stderr], [0, ""], allowed.stdout);
    assert.match(allowed.stdout, /^installed$/m);
    assert.ok(network.requests.every((request) => /^93\.184\.216\.3[45]:80 GET /.test(request)));
  });

  const noApt =
    noNetwork ||
    skipUnless(runs("apt-get", "--version") && runs("dpkg-deb", "--version"), "apt or dpkg-deb is missing");
  test("apt reads an allowed archive and downloads a package", { skip: noApt }, async (t) => {
    const root = makeDirectory(t);
    mkdirSync(join(root, "package/DEBIAN"), { recursive: true });
    mkdirSync(join(root, "archive"));
    const control = "Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@x.test>\nDescription: tiny\n";
    writeFileSync(join(root, "package/DEBIAN/control"), control);
    execFileSync("dpkg-deb", ["-b", join(root, "package"), join(root, "archive/tiny.deb")], { stdio: "ignore" });
    const [size, sum] = ["stat -c %s", "sha256sum"].map((command) =>
      execFileSync("sh", ["-c", `${command} archive/tiny.deb | cut -d' ' -f1`], { cwd: root, encoding: "utf8" }).trim(),
    );
    const entry = `${control}Filename: ./tiny.deb\nSize: ${size}\nSHA256: ${sum}\n\n`;
    writeFileSync(join(root, "archive/Packages"), entry);
    await using network = await TestNetwork.open({
      names: { "archive.test": [[INDEX]] },
      servers: [{ address: INDEX, port: 80, root: join(root, "archive") }],
    });
    const work = join(root, "work");
    mkdirSync(work);
    // The sandbox maps one user, so apt cannot switch to its own.
    const script = `mkdir -p lists/partial cache/archives/partial state etc && : >state/status
      echo 'deb [trusted=yes] http://archive.test/ ./' >etc/sources.list
      apt() { apt-get -q -o APT::Sandbox::User=root -o Acquire::Retries=0 -o Acquire::Languages=none \\
        -o Dir::State=$PWD/state -o Dir::State::lists=$PWD/lists -o Dir::State::status=$PWD/state/status \\
        -o Dir::Cache=$PWD/cache -o Dir::Etc::SourceList=$PWD/etc/sources.list -o Dir::Etc::SourceParts=- \\
        -o Dir::Etc::Parts=- -o Dir::Log=$PWD/state "$@" 2>&1; }
      apt update && apt download tiny && dpkg-deb -f tiny_1.0_all.deb Package`;
    const blocked = runIn(network, work, "allow:other.test", script);
    assert.match(blocked.stderr, /network: blocked archive\.test:80 \(not allowed\)/, blocked.stdout);
    assert.deepEqual(network.requests, []);
    const allowed = runIn(network, work, "allow:archive.test", script);
    assert.deepEqual([allowed.status, allowed.stderr], [0, ""], allowed.stdout);
    assert.match(allowed.stdout, /^tiny$/m);
  });
});
