import assert from "node:assert/strict";
import { test } from "node:test";
import { parseServeOptions } from "../../../src/cli/options/serve-options.ts";

const supervisedWith = (...flags: string[]) =>
  parseServeOptions(["--supervised", "--listen", "ws://127.0.0.1:0", ...flags])?.supervised;

test("parseServeOptions reads the limits of the supervisor, and null if a limit is disabled or absent", () => {
  assert.deepEqual(supervisedWith(), { livenessTimeoutMs: 30_000, giveUpAfter: null });
  assert.deepEqual(supervisedWith("--liveness-timeout", "0"), { livenessTimeoutMs: null, giveUpAfter: null });
  assert.deepEqual(supervisedWith("--liveness-timeout", "1.5", "--give-up-after", "3"), {
    livenessTimeoutMs: 1500,
    giveUpAfter: 3,
  });
  assert.throws(() => supervisedWith("--give-up-after", "0"), /--give-up-after `0`: expected 1 to 1024 crashes/);
});
