import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";

const root = join(import.meta.dirname, "..", "..");
const scratch = mkdtempSync(join(tmpdir(), "procwire-build-"));
after(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10 }));

/** Copies the native part of the package to a temporary directory. */
function copy(name: string): string {
  const place = join(scratch, name);
  cpSync(join(root, "native"), join(place, "native"), {
    recursive: true,
    filter: (path) => !path.includes("native/build") || path.endsWith("build.mjs"),
  });
  mkdirSync(join(place, "node_modules"));
  symlinkSync(join(root, "node_modules", "node-api-headers"), join(place, "node_modules", "node-api-headers"));
  return place;
}

/** Returns the output of a build, whatever its exit code. */
function build(place: string, env: Record<string, string> = {}, ...args: string[]): string {
  return execFileSync("sh", ["-c", '"$0" native/build.mjs "$@" 2>&1 || true', process.execPath, ...args], {
    cwd: place,
    encoding: "utf8",
    // No home, no cache, nothing but the compiler.
    env: { PATH: process.env.PATH ?? "", HOME: "/nonexistent", ...env },
  });
}

/** A fake compiler that records its call and creates the output file. */
function fakeCompiler(place: string, before = ""): Record<string, string> {
  const path = join(place, "compiler");
  const script = `#!/bin/sh
${before}
[ "$1" = --version ] && exit
echo called >>"${join(place, "compiled")}"
while [ "$1" != -o ]; do shift; done
echo made >"$2"
`;
  writeFileSync(path, script, { mode: 0o755 });
  return { CXX: path, CC: path };
}

/** Returns how often the fake compiler was called to compile. */
function calls(place: string): number {
  const log = join(place, "compiled");
  return existsSync(log) ? readFileSync(log, "utf8").split("\n").length - 1 : 0;
}

describe("native/build.mjs", {
  skip: process.platform === "linux" ? false : "THE BUILD IS NOT TESTED: not Linux",
}, () => {
  test("warns and succeeds without a compiler", () => {
    const place = copy("no-compiler");
    const text = build(place, { CXX: "no-such-compiler", CC: "no-such-compiler" });
    assert.match(text, /WARNING: cannot build native addon: compiler `no-such-compiler` not found/);
    assert.match(text, /terminals are unavailable/);
    assert.ok(!existsSync(join(place, "native", "build", "procwire.node")));
  });

  test("runs on install only in a source checkout", () => {
    const place = copy("installed");
    const env = fakeCompiler(place);
    assert.equal(build(place, env, "--in-clone"), "");
    assert.equal(calls(place), 0);
    mkdirSync(join(place, "src", "native"), { recursive: true });
    writeFileSync(join(place, "src", "native", "addon.ts"), "");
    assert.match(build(place, env, "--in-clone"), /^procwire: built /);
  });

  test("runs at first use with a compiler, and not again after a failure", () => {
    const place = copy("first-use");
    const none = { CXX: "no-such-compiler" };
    assert.match(
      build(place, none, "--first-use"),
      /^compiler `no-such-compiler` not found; install one \(for example g\+\+\) and start again, or run `node .*build.mjs`\n$/,
    );
    const failing = fakeCompiler(place, '[ "$1" = --version ] || exit 1');
    assert.match(build(place, failing, "--first-use"), /compiler` failed for build\/procwire.node\n$/);
    const called = calls(place);
    const env = fakeCompiler(place);
    assert.match(
      build(place, env, "--first-use"),
      /failed for build\/procwire.node; after fixing the cause, run `node /,
    );
    assert.equal(calls(place), called, "a failed build is not retried");
    assert.match(build(place, env), /^procwire: built /, "a manual build retries");
    rmSync(join(place, "native", "build"), { recursive: true });
    assert.match(build(place, env, "--first-use"), /^procwire: compiling the native addon once/);
    assert.ok(existsSync(join(place, "native", "build", "procwire.node")));
  });

  test("builds each target once, and again only after a source changes", () => {
    const place = copy("stamped");
    const env = fakeCompiler(place);
    assert.equal(
      build(place, env),
      "procwire: built build/procwire.node, build/watchdog, build/supervisor, build/sandbox-listeners\n",
    );
    assert.equal(calls(place), 4);
    assert.equal(build(place, env), "");
    assert.equal(calls(place), 4);
    writeFileSync(join(place, "native", "net", "byte-codec.cc"), "\n", { flag: "a" });
    assert.match(build(place, env), /built/);
    assert.equal(calls(place), 8);
    rmSync(join(place, "native", "build", "watchdog"));
    assert.match(build(place, env), /built/);
    assert.equal(calls(place), 12);
  });
});
