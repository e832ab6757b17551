import assert from "node:assert/strict";
import { appendFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { Rollout, readRollout } from "../../src/agent/rollout.ts";

test("a resumed thread keeps its new items after a line that a crash truncated", async () => {
  const home = await mkdtemp(path.join(tmpdir(), "procwire-rollout-"));
  try {
    const append = (item: Record<string, unknown>) => {
      using rollout = new Rollout(home, "thread");
      rollout.append(item);
    };
    append({ type: "message", text: "first" });
    await appendFile(path.join(home, "thread.jsonl"), '{"type":"function_call","call_');
    append({ type: "message", text: "second" });
    assert.deepEqual(readRollout(home, "thread"), [
      { type: "message", text: "first" },
      { type: "message", text: "second" },
    ]);
  } finally {
    await rm(home, { recursive: true });
  }
});
