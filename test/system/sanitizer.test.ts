import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { promisify } from "node:util";
import { NO_SUPERVISOR, persistentParams, SupervisedServer } from "../support/servers/supervised-server.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "..", "..");
const addon = join(root, "native", "build", "asan", "procwire.node");

function sanitizerLibrary(): string | null {
  try {
    const path = execFileSync(process.env.CXX ?? "c++", ["-print-file-name=libasan.so"], {
      encoding: "utf8",
    }).trim();
    return existsSync(path) ? path : null;
  } catch {
    return null;
  }
}

const library = process.platform === "linux" ? sanitizerLibrary() : null;

const skip = library ? false : "THE ADDON IS NOT CHECKED FOR MEMORY ERRORS: this compiler has no libasan";

describe("the addon under AddressSanitizer and UndefinedBehaviorSanitizer", () => {
  async function runChecked(...args: string[]): Promise<string> {
    const { stdout, stderr } = await run(process.execPath, args, {
      env: {
        ...process.env,
        // Checks only processes that this test starts, not the test runner.
        NODE_TEST_CONTEXT: undefined,
        LD_PRELOAD: library ?? "",
        // Node itself never frees all memory. The test detects use after free and out-of-bounds access, not leaks.
        ASAN_OPTIONS: "detect_leaks=0",
        PROCWIRE_NATIVE_SPAWNER: addon,
      },
    });
    assert.doesNotMatch(stderr, /AddressSanitizer|runtime error:/);
    return stdout;
  }

  before(() => skip || run(process.execPath, [join(root, "native", "build.mjs"), "--asan"]));

  test("compiles without a warning and runs all paths without a memory error or undefined behavior", {
    skip,
  }, async () => {
    const stdout = await runChecked(join(root, "test", "fixtures", "native", "churn.ts"));
    assert.equal(stdout.trim(), "churned");
  });

  test("runs a supervisor through kills, hot restarts and shutdown without a memory error", {
    skip: skip || NO_SUPERVISOR,
  }, async () => {
    await using server = await SupervisedServer.below(join(root, "native", "build", "asan", "supervisor"));
    await using client = await server.connect();
    const echo = 'while read line; do echo "got $line"; done; exit 7';
    const persistent = await client.start(persistentParams("persistent", echo));
    const short = await client.start(persistentParams("short", "exit 3"));
    for (const signal of ["SIGKILL", "SIGHUP", "SIGKILL"] as const) {
      if (signal === "SIGHUP") process.kill(server.supervisorPid, signal);
      else await server.killServer([persistent.pid, short.pid]);
      await persistent.write(Buffer.from(`${"x".repeat(100_000)}\n`));
    }
    assert.equal((await short.wait()).exitCode, 3);
    await persistent.closeStdin();
    assert.equal((await persistent.wait()).exitCode, 7);
    assert.deepEqual(await server.serve.stop(), { code: 0, signal: null });
    assert.doesNotMatch(server.serve.stderr, /AddressSanitizer|runtime error:/);
  });

  test("runs all socket paths without a memory error or undefined behavior", {
    skip,
  }, async () => {
    const stdout = await runChecked("--test", join(root, "test", "native", "wire.test.ts"));
    assert.match(stdout, /^(#|ℹ) fail 0$/m);
    assert.match(stdout, /^(#|ℹ) pass [1-9]/m);
  });
});
