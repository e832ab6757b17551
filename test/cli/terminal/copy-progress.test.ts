import assert from "node:assert/strict";
import { test } from "node:test";
import { CopyProgress } from "../../../src/cli/terminal/copy-progress.ts";
import { ManualClock } from "../../support/manual-clock.ts";

test("the progress line of a copy is redrawn after the time of day is set back", async () => {
  const clock = new ManualClock();
  const drawn: string[] = [];
  const progress = new CopyProgress({ write: (text) => drawn.push(text) }, clock);
  const totals = { files: 0, unchanged: 0, bytes: 10, totalFiles: 1, totalBytes: 100, isCounted: true };
  progress.update(totals);
  clock.setForward(-3_600_000);
  await clock.advance(1_000);
  progress.update(totals);
  assert.equal(drawn.length, 2);
  progress.finish(totals);
  assert.match(drawn[2] ?? "", /in 1\.0 s\n$/);
});
