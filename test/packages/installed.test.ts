import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { healthOf, InstalledProject, TERMINAL_BY_LIBRARY } from "./installed-project.ts";

describe("the package, installed without scripts where there is no compiler", () => {
  let project: InstalledProject;
  before(async () => {
    project = await InstalledProject.install();
  });
  after(() => project[Symbol.asyncDispose]());

  it("comes with the package of this platform, and of no other", () => {
    assert.deepEqual(project.fetched, [`linux-${process.arch}`]);
    assert.equal(project.versionOf(`@procwire/linux-${process.arch}`), project.versionOf("procwire"));
  });

  it("does not compile", () => {
    assert.ok(!existsSync(project.file("procwire", "native", "build")));
  });

  it("serves a terminal by its CLI, below a watchdog, with nothing degraded", async () => {
    const url = await project.serve();
    assert.deepEqual(await healthOf(url).then(({ status, degraded }) => ({ status, degraded })), {
      status: "ok",
      degraded: [],
    });
    const script = "test -t 0 && echo a terminal; exit 3";
    const ran = await project.procwire("run", "--connect", url, "--tty", "--", "sh", "-c", script);
    assert.deepEqual([ran.code, ran.stdout.trim()], [3, "a terminal"], ran.stderr);
  });

  it("gives a terminal to a program that uses the library", async () => {
    const ran = await project.script(TERMINAL_BY_LIBRARY);
    assert.deepEqual([ran.stdout.trim(), ran.stderr], [`${process.arch} 0 a terminal`, ""]);
  });

  it("says in one line what it needs on an older Node, in its library and its CLI", async (t) => {
    const { code, stdout: version } = await project.run("/usr/bin/node", "--version");
    if (code !== 0 || Number(version.slice(1).split(".")[0]) >= 24) {
      assert.ok(!process.env.CI, "CI must have a Node older than 24 in /usr/bin");
      return t.skip("OLDER NODES ARE NOT TESTED: /usr/bin/node is not one");
    }
    const said = `needs Node 24 or newer; /usr/bin/node is ${version.trim()}`;
    const library = await project.run(
      "/usr/bin/node",
      ...["-e", 'import("procwire").catch((error) => console.log(String(error)))'],
    );
    assert.equal(library.stdout, `Error: procwire ${said}\n`);
    const cli = await project.run(
      "/usr/bin/node",
      project.file("procwire/bin/main.cjs"),
      "dist/bin/procwire.cjs",
    );
    assert.deepEqual(cli, { code: 1, stdout: "", stderr: `procwire: ${said}\n` });
  });
});

describe("the package, installed without the package of its platform", () => {
  it("says what is degraded and how to mend it where there is no compiler", async () => {
    await using project = await InstalledProject.install({ npmArgs: ["--omit=optional"] });
    assert.deepEqual(project.fetched, []);
    const { degraded } = await healthOf(await project.serve());
    assert.equal(degraded.length, 2);
    const mend = `node ${project.file("procwire", "native", "build.mjs")}`;
    assert.match(
      degraded[0] ?? "",
      /^native spawner missing: there is no package for it \(@procwire\/linux-.*--omit=optional\), and it could not be compiled: there is no compiler `c\+\+`; install one \(for example g\+\+\) and start again, or run /,
    );
    assert.ok(degraded[0]?.includes(mend), degraded[0]);
    assert.match(degraded[1] ?? "", /^no watchdog: /);
  });

  it("compiles at first use where there is a compiler, the watchdog too", async () => {
    await using project = await InstalledProject.install({ npmArgs: ["--omit=optional"], compiler: true });
    const { status, degraded } = await healthOf(await project.serve());
    assert.deepEqual({ status, degraded }, { status: "ok", degraded: [] });
    const ran = await project.script(TERMINAL_BY_LIBRARY);
    assert.deepEqual(
      [ran.stdout.trim(), ran.stderr],
      [`${process.arch} 0 a terminal`, ""],
      "it is compiled once",
    );
  });
});
