import assert from "node:assert/strict";
import { test } from "node:test";
import { formatDuration, formatQuantity, formatRate } from "../../../src/web/app/format.ts";

test("durations are true to 10 ms below a minute", () => {
  const cases: [number, string][] = [
    [0, "0 ms"],
    [4, "0 ms"],
    [5, "10 ms"],
    [994, "990 ms"],
    [1234, "1.23 s"],
    [59_994, "59.99 s"],
    [59_996, "1m00s"],
    [125_400, "2m05s"],
  ];
  for (const [ms, text] of cases) assert.equal(formatDuration(ms), text);
});

test("slow jobs show their rate per minute", () => {
  assert.equal(formatRate(0), "");
  assert.equal(formatRate(0.05), "3.0 rows/min");
  assert.equal(formatRate(2.34), "2.3 rows/s");
  assert.equal(formatRate(123.4), "123 rows/s");
});

test("a quantity is a count with its noun", () => {
  assert.equal(formatQuantity(1, "row"), "1 row");
  assert.equal(formatQuantity(0, "row"), "0 rows");
  assert.equal(formatQuantity(2000, "process", "processes"), "2,000 processes");
});
