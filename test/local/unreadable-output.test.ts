import assert from "node:assert/strict";
import { test } from "node:test";
import { outputReadError } from "../../src/local/errno-text.ts";
import { spawnNodeChild } from "../../src/local/fallback-child.ts";
import { LocalBackend } from "../../src/local/local-backend.ts";
import type { ProcessPlatform } from "../../src/local/platform.ts";
import { nodePlatform } from "../../src/local/platform.ts";

/** The fallback spawner with an output read that fails. test/system provokes a real failure. */
function unreadable(): ProcessPlatform {
  return {
    ...nodePlatform("disabled by a test"),
    spawn: (spec, events) => spawnNodeChild(spec, { ...events, output: () => events.failed(outputReadError(5)) }),
  };
}

test("a process whose output cannot be read fails, is killed, and frees its id", async () => {
  await using backend = new LocalBackend(unreadable(), { isLibrary: true });
  const params = {
    processId: "p",
    argv: ["/bin/sh", "-c", "echo x; sleep 1000"],
    cwd: "/",
    env: {},
    tty: false,
  };
  const process = await backend.start(params);
  const message = "failed to read the output of the process: I/O error (os error 5)";
  await assert.rejects(process.wait(), { name: "ExecServerError", code: "FAILED", message });
  const { failure, closed, exited } = await process.read();
  assert.deepEqual([failure, closed, exited], [message, true, false]);
  await process.closed;
  assert.equal(process.running, false);
  assert.deepEqual(await process.write(new Uint8Array(1)), { status: "stdinClosed" });
  assert.deepEqual(await backend.list(), []);
  await using again = await backend.start({ ...params, argv: ["true"] });
  assert.equal((await again.wait()).exitCode, 0);
});
