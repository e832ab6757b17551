import assert from "node:assert/strict";
import { test } from "node:test";
import { parseDuration, parseSince } from "../../../src/cli/options/parse-duration.ts";

test("parseDuration parses durations with a unit", () => {
  assert.deepEqual(
    ["90s", "15m", "2h", "1d", "1.5", "0s"].map((text) => parseDuration("expires", text)),
    [90_000, 900_000, 7_200_000, 86_400_000, 1500, 0],
  );
  for (const text of ["", "x", "1w", "-1s", "2026-01-31"])
    assert.throws(() => parseDuration("expires", text), /invalid --expires `/);
});

test("parseSince parses a duration or a time", () => {
  assert.deepEqual(parseSince("since", "15m"), { type: "agoMs", ms: 900_000 });
  const epochMs = Date.UTC(2026, 0, 31, 9, 30);
  assert.deepEqual(parseSince("since", "2026-01-31T09:30:00Z"), { type: "epochMs", ms: epochMs });
  assert.deepEqual(parseSince("since", "2026-01-31T10:30+01:00"), { type: "epochMs", ms: epochMs });
  for (const text of ["yesterday", "2026-13-01", "2026-01-31T99:00"])
    assert.throws(() => parseSince("since", text), /invalid --since `.*; expected a duration .* or a time/);
});
