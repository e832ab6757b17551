import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProcessListing } from "../../../src/exec/exec-process.ts";
import { describeExit, describeProcess } from "../../../src/web/app/state-badge.ts";

const LISTING: ProcessListing = {
  ...{ processId: "p", argv: ["true"], cwd: "/", tty: false, pid: 1, running: true, exitCode: null, signal: null },
  ...{ sandbox: "none", startedAtMs: 0, outputBytes: 0 },
} as ProcessListing;

test("the badge of a running process names what it waits for", () => {
  const label = (status?: ProcessListing["status"]) => describeProcess({ ...LISTING, status }).label;
  assert.equal(label(), "running");
  assert.equal(label({ awaits: "key" }), "waiting for input");
  assert.equal(label({ awaits: "secret" }), "waiting for a password");
  assert.equal(label({ awaits: "key", isHeld: true }), "paused");
});

test("the badge of an ended process names its exit code or what ended it", () => {
  const ended = { exitCode: null, signal: null };
  assert.deepEqual(describeExit({ ...ended, exitCode: 0 }), { tone: "success", label: "exited 0" });
  assert.equal(describeExit({ ...ended, exitCode: 3 }).label, "exited 3");
  assert.equal(describeExit({ exitCode: 137, signal: "SIGKILL" }).detail, "killed by SIGKILL");
  assert.equal(describeExit({ exitCode: 143, signal: "SIGTERM", reason: "timeout" }).label, "timed out");
  assert.equal(describeExit({ ...ended, reason: "limit", limit: "outputBytes" }).label, "killed");
  assert.equal(describeExit({ ...ended, reason: "terminated" }).label, "killed");
  assert.equal(describeExit(ended).label, "failed");
  for (const exitCode of [-1, null]) assert.equal(describeExit({ ...ended, exitCode }).label, "failed");
});
