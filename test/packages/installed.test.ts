import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { skipUnless } from "../support/system/skip-unless.ts";
import { healthOf, InstalledProject, TERMINAL_BY_LIBRARY } from "./installed-project.ts";

describe("the package, installed without scripts and without a compiler", () => {
  let project: InstalledProject;
  before(async () => {
    project = await InstalledProject.install();
  });
  after(() => project[Symbol.asyncDispose]());

  test("contains the package of this platform, and of no other platform", () => {
    assert.deepEqual(project.platforms, [`linux-${process.arch}`]);
    assert.equal(project.versionOf(`@procwire/linux-${process.arch}`), project.versionOf("procwire"));
  });

  test("does not compile", () => {
    assert.ok(!existsSync(project.file("procwire", "native", "build")));
  });

  test("serves a terminal with its CLI, below a watchdog, with no degraded feature", async () => {
    const url = await project.serve();
    assert.deepEqual(await healthOf(url).then(({ status, degraded }) => ({ status, degraded })), {
      status: "ok",
      degraded: [],
    });
    const script = "test -t 0 && echo a terminal; exit 3";
    const ran = await project.procwire("run", "--connect", url, "--tty", "--", "sh", "-c", script);
    assert.deepEqual([ran.code, ran.stdout.trim()], [3, "a terminal"], ran.stderr);
  });

  test("allocates a terminal for a program that uses the library", async () => {
    const ran = await project.script(TERMINAL_BY_LIBRARY);
    assert.deepEqual([ran.stdout.trim(), ran.stderr], [`${process.arch} 0 a terminal`, ""]);
  });

  test("reports the required Node version in one line on an older Node, in its library and its CLI", async (t) => {
    const older = olderNode();
    const skip = skipUnless(older !== null, "OLDER NODES ARE NOT TESTED: no Node on PATH is older than 24");
    if (older === null) return t.skip(skip || "");
    const versionError = /procwire:? needs Node 24 or newer; \S+ is v\d+\.\d+\.\d+\n$/.source;
    const program = 'import("procwire").catch((error) => console.log(String(error)))';
    assert.match((await project.run(older, "-e", program)).stdout, new RegExp(`^Error: ${versionError}`));
    const cli = await project.run(older, project.file("procwire/bin/main.cjs"), "dist/bin/procwire.cjs");
    assert.match(cli.stderr, new RegExp(`^${versionError}`));
    assert.equal(cli.code, 1);
  });
});

/** Returns a Node on PATH that is too old for this package, or null. A clone may be installed with such a Node. */
function olderNode(): string | null {
  const nodes = (process.env.PATH ?? "").split(delimiter).map((directory) => join(directory, "node"));
  const isOlder = (node: string) => {
    const { stdout } = spawnSync(node, ["--version"], { encoding: "utf8" });
    return Number(/^v(\d+)\./.exec(stdout ?? "")?.[1] ?? 24) < 24;
  };
  return nodes.find(isOlder) ?? null;
}

describe("the package, installed without the package of its platform", () => {
  test("reports degraded features and their remedy without a compiler", async () => {
    await using project = await InstalledProject.install({ npmArgs: ["--omit=optional"] });
    assert.deepEqual(project.platforms, []);
    const { degraded } = await healthOf(await project.serve());
    assert.equal(degraded.length, 2);
    const mend = `node ${project.file("procwire", "native", "build.mjs")}`;
    assert.match(
      degraded[0] ?? "",
      /^native addon missing: there is no package for it \(@procwire\/linux-.*--omit=optional\), and it could not be compiled: compiler `c\+\+` not found; install one \(for example g\+\+\) and start again, or run /,
    );
    assert.ok(degraded[0]?.includes(mend), degraded[0]);
    assert.match(degraded[1] ?? "", /^no watchdog: /);
  });

  test("compiles the addon and the watchdog at first use if a compiler exists", async () => {
    await using project = await InstalledProject.install({ npmArgs: ["--omit=optional"], compiler: true });
    const { status, degraded } = await healthOf(await project.serve());
    assert.deepEqual({ status, degraded }, { status: "ok", degraded: [] });
    const ran = await project.script(TERMINAL_BY_LIBRARY);
    assert.deepEqual([ran.stdout.trim(), ran.stderr], [`${process.arch} 0 a terminal`, ""], "it is compiled once");
  });
});
