import assert from "node:assert/strict";
import { test } from "node:test";
import { toRateCurve } from "../../../src/web/jobs/rate-curve.ts";

const settled = [
  { atMs: 10_000, completed: 4, failed: 0 },
  { atMs: 14_000, completed: 1, failed: 1 },
  { atMs: 16_000, completed: 1, failed: 0 },
];

test("the rate of a job has zeros for spans without a finished row", () => {
  assert.deepEqual(toRateCurve({ job: { status: "completed" }, settled, spanMs: 2_000 }), [
    [10, 2],
    [12, 0],
    [14, 1],
    [16, 0.5],
  ]);
  assert.deepEqual(toRateCurve({ job: { status: "running" }, settled: [], spanMs: 2_000 }), []);
});

test("the rate of a running job omits its last span, which is not over", () => {
  const curve = toRateCurve({ job: { status: "running" }, settled, spanMs: 2_000 });
  assert.deepEqual(curve.at(-1), [14, 1]);
});
