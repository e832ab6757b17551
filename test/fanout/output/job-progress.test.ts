import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { StatusLine } from "../../../src/agent/output/status-line.ts";
import { NO_USAGE } from "../../../src/agent/token-usage.ts";
import type { JobCounts } from "../../../src/fanout/job.ts";
import { countText, formatProgress, type JobProgress, RateMeter } from "../../../src/fanout/output/job-progress.ts";
import { JsonlJobListener } from "../../../src/fanout/output/jsonl-job-listener.ts";
import { ParentRunListener } from "../../../src/fanout/output/parent-run-listener.ts";
import { TerminalJobListener } from "../../../src/fanout/output/terminal-job-listener.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const counts = (completed: number, total = 100, failed = 0): JobCounts => ({
  total,
  pending: total - completed - failed,
  running: 0,
  completed,
  failed,
  finishedWithUsage: completed,
  usage: { ...NO_USAGE, inputTokens: completed * 100, outputTokens: completed },
});

const progress = (completed: number, extra: Partial<JobProgress> = {}): JobProgress => ({
  jobId: "1a2b3c4d-rest",
  counts: counts(completed),
  costUsd: null,
  ratePerSecond: 12.34,
  etaSeconds: 75,
  width: 16,
  maxWidth: 16,
  pausedMs: 0,
  apiOutage: null,
  ...extra,
});

test("the line shows job, bar, counts, rate, estimate and tokens within its width", () => {
  const line = formatProgress(progress(50), 130);
  assert.match(
    line,
    /^job 1a2b3c4d \[#+-+\] 50 of 100 rows \(50%\), 0 running, 50 waiting, 12\.3 rows\/s, 1m15s left, 5050 tokens$/,
  );
  assert.ok(line.length <= 129);
  const usage = { ...NO_USAGE, inputTokens: 20_000, cachedInputTokens: 15_000 };
  const dear = { counts: { ...counts(49, 100, 1), usage }, costUsd: 0.0123 };
  assert.match(formatProgress(progress(0, dear), null), /, 1 failed, .*, 20.0k tokens \(15.0k cached\), \$0.012$/);
  assert.match(formatProgress(progress(0, { counts: counts(0, 0) }), 80), /\[#+\] 0 of 0 rows \(100%\)/);
});

test("a narrow line drops values by their importance, and never cuts one", () => {
  const busy = progress(0, { counts: counts(49, 100, 1), costUsd: 0.0123, width: 4, pausedMs: 2500 });
  const all = formatProgress(busy, null);
  const values = all.slice(all.indexOf("] ") + 2).split(", ");
  for (let columns = 200; columns >= 10; columns--) {
    const line = formatProgress(busy, columns);
    assert.match(line, /50 of 100 rows \(50%\)/);
    if (columns > 30) assert.ok(line.length < columns, `${columns}: ${line}`);
    const shown = line.replace(/^(job \w+ )?(\[[#-]+\] )?/, "").split(", ");
    assert.deepEqual(
      shown.filter((value) => !values.includes(value)),
      [],
    );
  }
  assert.match(formatProgress(busy, 90), /1 failed, .*1m15s left, /);
  assert.match(formatProgress(busy, 60), /\] 50 of 100 rows \(50%\), 1 failed$/);
  assert.equal(formatProgress(busy, 40), "job 1a2b3c4d 50 of 100 rows (50%)");
  assert.equal(formatProgress(busy, 25), "50 of 100 rows (50%)");
});

test("the line shows reduced concurrency and paused requests", () => {
  assert.match(formatProgress(progress(1, { width: 4, pausedMs: 2500 }), null), /, 4 of 16 slots open, paused for 3s$/);
});

test("the rate covers the last half minute and follows a change of speed", () => {
  const meter = new RateMeter();
  assert.deepEqual(meter.sample(counts(0), 0), { ratePerSecond: 0, etaSeconds: null });
  assert.deepEqual(meter.sample(counts(20), 10_000), { ratePerSecond: 2, etaSeconds: 40 });
  // No row finishes for a minute: the rate before it is forgotten.
  for (let second = 11; second <= 70; second++) meter.sample(counts(20), second * 1000);
  assert.deepEqual(meter.sample(counts(20), 71_000), { ratePerSecond: 0, etaSeconds: null });
});

test("counts are short", () => {
  assert.deepEqual([9999, 12_345, 1_234_567].map(countText), ["9999", "12.3k", "1.2M"]);
});

class Screen extends PassThrough {
  text = "";
  isTTY = true;
  columns = 60;
  constructor() {
    super();
    this.setEncoding("utf8").on("data", (chunk: string) => {
      this.text += chunk;
    });
  }
}

test("on a terminal the bar is redrawn in place and lines are printed above it", () => {
  const screen = new Screen();
  const status = new StatusLine(screen);
  status.status("bar 1");
  status.line("a line");
  status.status("bar 2".padEnd(100, "-"));
  status.clear();
  status.clear();
  assert.equal(
    screen.text,
    `\r\x1b[2Kbar 1\r\x1b[2Ka line\n\r\x1b[2Kbar 1\r\x1b[2K${"bar 2".padEnd(59, "-")}\r\x1b[2K`,
  );
});

test("without a terminal the progress is one line every five seconds", async () => {
  const screen = new Screen();
  screen.isTTY = false;
  const clock = new ManualClock();
  const output = new TerminalJobListener(screen, clock);
  for (let tick = 0; tick < 44; tick++) {
    output.progress(progress(tick));
    await clock.advance(250);
  }
  const lines = screen.text.trimEnd().split("\n");
  assert.equal(lines.length, 2);
  assert.ok(lines.every((line) => line.startsWith("job 1a2b3c4d [")));
});

test("progress events follow their interval after the time of day is set back", async () => {
  const clock = new ManualClock();
  let lines = 0;
  const stdout = new PassThrough().on("data", () => lines++);
  const notify = () => void lines++;
  const run = { threadId: "thread", turnId: "turn", notify, addSubagentsUsage: () => undefined };
  for (const output of [new JsonlJobListener(stdout, clock), new ParentRunListener(run, clock)]) {
    lines = 0;
    output.progress(progress(1));
    clock.setForward(-3_600_000);
    await clock.advance(1_000);
    output.progress(progress(2));
    assert.equal(lines, 2);
  }
});

test("many failures are not shown one by one", () => {
  const screen = new Screen();
  screen.isTTY = false;
  const output = new TerminalJobListener(screen);
  for (let row = 1; row <= 30; row++) {
    output.row({
      itemId: `row-${row}`,
      rowIndex: row,
      sourceId: null,
      row: {},
      status: "failed",
      attempts: 3,
      result: null,
      errorClass: "timeout",
      error: "too slow",
      usage: NO_USAGE,
      startedAtMs: 0,
      reportedAtMs: null,
      completedAtMs: 0,
    });
  }
  const lines = screen.text.trimEnd().split("\n");
  assert.equal(lines.length, 11);
  assert.equal(lines[0], "row-1 failed (timeout): too slow");
  assert.equal(lines[10], "more rows failed; errors.csv lists all of them");
});
