import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { runningCosts } from "../../bench/specification/running-costs.ts";
import { exceededCosts } from "../../bench/specification/specification.ts";
import { systemCalls } from "../../bench/specification/system-calls.ts";
import { whyNoStrace } from "../support/faults/injected-faults.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const HINT = "to accept: npm run specification -- --write";
const noStrace = whyNoStrace();

describe("docs/specification.md", { timeout: 600_000 }, () => {
  test("states the system calls of a start, an echo and output", {
    skip: skipUnless(noStrace === null, `${noStrace}; run \`npm run setup:debian\``),
  }, async () => {
    assert.deepEqual(exceededCosts("calls", await systemCalls()), [], HINT);
  });

  test("states the memory, descriptors and wake-ups of connections, sessions and processes", async () => {
    assert.deepEqual(exceededCosts("memory", await runningCosts()), [], HINT);
  });
});
