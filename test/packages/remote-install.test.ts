import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { tarball } from "../../scripts/build/pack-all.ts";
import { PLATFORMS } from "../../scripts/build/platforms.ts";
import { PREBUILT } from "../../scripts/build/prebuild.ts";
import { PlatformPackages } from "../../src/host/package/platform-packages.ts";
import { NATIVE_FILES } from "../../src/native/native-files.ts";
import { LoopbackSshd, SKIP_WITHOUT_SSHD } from "../support/servers/loopback-sshd.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { makeArm64Host, SKIP_WITHOUT_QEMU } from "../support/system/emulated-arm64.ts";
import { PackageRegistry } from "./package-registry.ts";

describe("--install on an arm64 host", {
  skip: SKIP_WITHOUT_QEMU || SKIP_WITHOUT_SSHD,
  timeout: 600_000,
}, () => {
  test("copies the arm64 addon, programs and Node through a real sshd, and allocates a terminal there", async (t) => {
    using scratch = scratchDirectory();
    const host = await LoopbackSshd.start({ isBare: true, ...makeArm64Host(scratch.path) });
    t.after(() => host.stop());
    const run = (...words: string[]) =>
      runCli(["run", "--connect", host.url, "--wait", "20", ...words], {
        cwd: host.place.directory,
        env: {
          PATH: host.path,
          npm_config_userconfig: process.env.npm_config_userconfig ?? "",
          npm_config_cache: process.env.npm_config_cache ?? "",
          // npm needs the certificate authority of a proxy, if this host has one.
          NODE_EXTRA_CA_CERTS: process.env.NODE_EXTRA_CA_CERTS ?? "",
        },
        stuckMs: 400_000,
      });
    const refused = await run("--", "true");
    assert.match(refused.stderr, /procwire is not installed on that host \(Linux aarch64\)/);

    const installed = await run("--install", "--yes", "--", "sh", "-c", "echo there; exit 5");
    assert.deepEqual([installed.code, installed.stdout], [5, "there\n"], installed.stderr);
    const copy = join(host.home, ".local/share/procwire");
    for (const name of NATIVE_FILES)
      assert.ok(
        readFileSync(join(copy, "native/build", name)).equals(readFileSync(join(PREBUILT, "linux-arm64", name))),
        name,
      );
    for (const path of ["node_modules/.bin/node", "native/build/procwire.node", "native/build/supervisor"])
      assert.match(execFileSync("readelf", ["-h", join(copy, path)], { encoding: "utf8" }), /AArch64/);

    const terminal = await run("--tty", "--", "sh", "-c", "test -t 0 && echo a terminal");
    assert.deepEqual([terminal.code, terminal.stdout.trim()], [0, "a terminal"], terminal.stderr);
    // The server is an arm64 program.
    const servers = host.place.serverPids().map((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1"));
    assert.ok(servers.length > 0 && servers.every((words) => words.includes("qemu-aarch64")), `${servers}`);
  });
});

describe("an installation that is not a clone", () => {
  test("downloads the package of each platform from npm's configured registry", async (t) => {
    await using registry = await PackageRegistry.open();
    const setting = "npm_config_@procwire:registry";
    process.env[setting] = registry.url;
    t.after(() => {
      delete process.env[setting];
    });
    using packages = new PlatformPackages({ clone: null, log: () => undefined });
    for (const platform of PLATFORMS) {
      const installed = await packages.native(platform.name);
      for (const name of NATIVE_FILES) {
        const packed = execFileSync("tar", ["-xzOf", tarball(platform), `package/${name}`], {
          maxBuffer: 2 ** 28,
        });
        assert.ok(readFileSync(join(installed, name)).equals(packed), `${platform.name}/${name}`);
      }
      assert.ok(existsSync(join(installed, "package.json")));
    }
  });
});
