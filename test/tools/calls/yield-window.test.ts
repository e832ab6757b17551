import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  DEFAULT_YIELD_LIMITS,
  execWindowMs,
  pollWindowMs,
  writeWindowMs,
} from "../../../src/tools/calls/yield-window.ts";

const limits = DEFAULT_YIELD_LIMITS;

test("a command's window is 10 s, at least 250 ms and at most 30 s", () => {
  assert.deepEqual(
    [undefined, 0, 249, 250, 12_345, 30_000, 30_001].map((ms) => execWindowMs(ms, limits)),
    [10_000, 250, 250, 250, 12_345, 30_000, 30_000],
  );
});

test("a write's window is 250 ms, at least that and at most 30 s", () => {
  assert.deepEqual(
    [undefined, 0, 251, 99_999].map((ms) => writeWindowMs(ms, limits)),
    [250, 250, 251, 30_000],
  );
});

test("a poll's window is at least 5 s and at most 5 minutes", () => {
  assert.deepEqual(
    [undefined, 250, 5_001, 400_000].map((ms) => pollWindowMs(ms, limits)),
    [5_000, 5_000, 5_001, 300_000],
  );
});

test("the longest poll can be configured", () => {
  assert.equal(pollWindowMs(400_000, { ...limits, pollMaxMs: 3_600_000 }), 400_000);
});

test("every yield window is within its limits", () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true }), (ms) => {
      for (const [window, min, max] of [
        [execWindowMs(ms, limits), 250, 30_000],
        [writeWindowMs(ms, limits), 250, 30_000],
        [pollWindowMs(ms, limits), 5_000, 300_000],
      ] as const)
        assert.ok(window >= min && window <= max);
    }),
  );
});
