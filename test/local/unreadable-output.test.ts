import assert from "node:assert/strict";
import { test } from "node:test";
import { unreadableOutput } from "../../src/local/errno-text.ts";
import { spawnFallbackChild } from "../../src/local/fallback-child.ts";
import { LocalBackend } from "../../src/local/local-backend.ts";
import type { LocalMachine } from "../../src/local/platform.ts";
import { plainMachine } from "../../src/local/platform.ts";

/** Node's own spawner, whose first piece of output cannot be read; test/host has the system fail for real. */
function unreadable(): LocalMachine {
  return {
    ...plainMachine("a test wants it so"),
    spawn: (spec, events) =>
      spawnFallbackChild(spec, { ...events, output: () => events.broken(unreadableOutput(5)) }),
  };
}

test("a process whose output cannot be read fails, is ended, and its id is free again", async () => {
  await using backend = new LocalBackend(unreadable(), { calledDirectly: true });
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
