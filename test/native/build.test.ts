import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";

const root = join(import.meta.dirname, "..", "..");
const folder = mkdtempSync(join(tmpdir(), "procwire-build-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/** A copy of the package's native part in a place of its own. */
function copy(name: string): string {
  const place = join(folder, name);
  cpSync(join(root, "native"), join(place, "native"), {
    recursive: true,
    filter: (path) => !path.includes("native/build") || path.endsWith("build.mjs"),
  });
  mkdirSync(join(place, "node_modules"));
  symlinkSync(
    join(root, "node_modules", "node-api-headers"),
    join(place, "node_modules", "node-api-headers"),
  );
  return place;
}

function build(place: string, env: Record<string, string> = {}): string {
  return execFileSync("sh", ["-c", '"$0" native/build.mjs 2>&1', process.execPath], {
    cwd: place,
    encoding: "utf8",
    // No home, no cache, nothing but the compiler.
    env: { PATH: process.env.PATH ?? "", HOME: "/nonexistent", ...env },
  });
}

describe("building the native part", {
  skip: process.platform === "linux" ? false : "THE BUILD IS NOT TESTED: not Linux",
}, () => {
  it("succeeds with a loud warning where there is no compiler", () => {
    const place = copy("no-compiler");
    const text = build(place, { CXX: "no-such-compiler", CC: "no-such-compiler" });
    assert.match(text, /WARNING: the native addon could not be built: no compiler `no-such-compiler`/);
    assert.match(text, /terminals are refused/);
    assert.ok(!existsSync(join(place, "native", "build", "procwire.node")));
  });

  it("uses a prebuild that is there", () => {
    const place = copy("prebuilt");
    const prebuilds = join(place, "native", "prebuilds", `${process.platform}-${process.arch}`);
    mkdirSync(prebuilds, { recursive: true });
    for (const name of ["procwire.node", "watchdog"]) writeFileSync(join(prebuilds, name), "");
    assert.match(build(place, { CXX: "no-such-compiler" }), /using the prebuilt addon/);
  });

  it("builds each thing once, and again only when a source has changed", () => {
    const place = copy("stamped");
    const log = join(place, "compiled");
    const compiler = join(place, "compiler");
    // Stands in for a compiler: notes that it was called, and makes the file it was asked for.
    const script = `#!/bin/sh\necho called >>"${log}"\nwhile [ "$1" != -o ]; do shift; done\necho made >"$2"\n`;
    writeFileSync(compiler, script, { mode: 0o755 });
    const calls = () => (existsSync(log) ? readFileSync(log, "utf8").split("\n").length - 1 : 0);
    const env = { CXX: compiler, CC: compiler };
    assert.equal(build(place, env), "procwire: built build/procwire.node, build/watchdog\n");
    assert.equal(calls(), 2);
    assert.equal(build(place, env), "");
    assert.equal(calls(), 2);
    writeFileSync(join(place, "native", "wire", "bytes.cc"), "\n", { flag: "a" });
    assert.match(build(place, env), /built/);
    assert.equal(calls(), 4);
    rmSync(join(place, "native", "build", "watchdog"));
    assert.match(build(place, env), /built/);
    assert.equal(calls(), 6);
  });
});
