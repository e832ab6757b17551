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

test("bulk output and an interactive exchange share the loop by time, in long slices", {
  skip: skipUnless(hasCompiler, `no compiler \`${compiler}\``),
}, (t) => {
  const scratch = mkdtempSync(join(tmpdir(), "procwire-bulk-scheduler-"));
  t.after(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10 }));
  const executable = join(scratch, "bulk-scheduler");
  const source = join(root, "test/fixtures/native/bulk-scheduler.cc");
  const flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", `-I${join(root, "native")}`];
  const compiled = spawnSync(compiler, [...flags, source, "-o", executable], { encoding: "utf8" });
  assert.equal(compiled.status, 0, compiled.stderr);
  assert.equal(spawnSync(executable).status, 0, "the exit status is the line of the failed check in the fixture");
});
