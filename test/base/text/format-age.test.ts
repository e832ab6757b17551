import assert from "node:assert/strict";
import { test } from "node:test";
import { formatAge } from "../../../src/base/text/format-age.ts";

test("formatAge formats an age with its two largest units", () => {
  const seconds = [-5, 0, 59, 60, 3599, 3600, 86_399, 86_400, 90_000, 864_000];
  assert.deepEqual(
    seconds.map((value) => formatAge(value * 1000)),
    ["0s", "0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d00h", "1d01h", "10d00h"],
  );
  assert.equal(formatAge(1999), "1s");
});
