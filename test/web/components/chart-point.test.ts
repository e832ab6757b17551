import assert from "node:assert/strict";
import { test } from "node:test";
import { chartTimeRange } from "../../../src/web/components/chart-point.ts";

test("the time axis starts at the first sample and covers at least a minute", () => {
  assert.deepEqual(chartTimeRange([], 1000), [1000, 1060]);
  assert.deepEqual(chartTimeRange([500], 1000), [500, 560]);
  assert.deepEqual(chartTimeRange([500, 530], 1000), [500, 560]);
  assert.deepEqual(chartTimeRange([500, 7700], 8000), [500, 7700]);
});
