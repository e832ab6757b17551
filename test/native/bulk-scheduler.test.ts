import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { skipUnless } from "../support/system/skip-unless.ts";

const root = join(import.meta.dirname, "..", "..");
const compiler = process.env.CXX ?? "c++";
const hasCompiler = spawnSync(compiler, ["--version"], { stdio: "ignore" }).status === 0;

test("a flood and a dialogue share the loop by time, in turns that are long enough to be cheap", {
  skip: skipUnless(hasCompiler, `no compiler \`${compiler}\``),
}, (t) => {
  const folder = mkdtempSync(join(tmpdir(), "procwire-bulk-scheduler-"));
  t.after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10 }));
  const program = join(folder, "bulk-scheduler");
  const source = join(root, "test/fixtures/native/bulk-scheduler.cc");
  const flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", `-I${join(root, "native")}`];
  const compiled = spawnSync(compiler, [...flags, source, "-o", program], { encoding: "utf8" });
  assert.equal(compiled.status, 0, compiled.stderr);
  assert.equal(spawnSync(program).status, 0, "the number is the line of the fixture that did not hold");
});
