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

test("parseServeOptions rejects options of the web console without --web, and --web on stdio", () => {
  const webSocket = ["--listen", "ws://127.0.0.1:0"];
  const origin = ["--allow-origin", "https://console.example"];
  assert.throws(() => parseServeOptions([...webSocket, ...origin]), /^UsageError: --allow-origin requires --web$/);
  assert.throws(() => parseServeOptions([...webSocket, "--jobs", "jobs"]), /^UsageError: --jobs requires --web$/);
  assert.throws(
    () => parseServeOptions([...webSocket, "--jobs-database"]),
    /^UsageError: --jobs-database requires --web$/,
  );
  assert.throws(
    () => parseServeOptions(["--web"]),
    /^UsageError: --web requires --listen ws:\/\/IP:PORT or unix:\/\/PATH$/,
  );
  assert.deepEqual(parseServeOptions([...webSocket, "--web", ...origin])?.web?.allowOrigins, [origin[1]]);
  assert.equal(parseServeOptions([...webSocket, "--no-jobs-database"])?.web, undefined);
});
