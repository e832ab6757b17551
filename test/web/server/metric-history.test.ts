import assert from "node:assert/strict";
import { test } from "node:test";
import { MetricHistory } from "../../../src/web/server/metric-history.ts";

const sample = (cpuSeconds: number, outputBytes: number) =>
  new Map([
    ["process_resident_memory_bytes", 1000],
    ["process_cpu_seconds_total", cpuSeconds],
    ["procwire_output_bytes_total", outputBytes],
    ['procwire_connections_rejected_total{reason="auth"}', outputBytes / 100],
  ]);

test("charts show gauges as they are and counters as rates, with a gap after a restart", () => {
  const history = new MetricHistory();
  history.add(sample(1, 0), 100);
  assert.deepEqual(history.points.memory, [[100, 1000]]);
  assert.deepEqual(history.points.output, []);
  history.add(sample(2, 200), 102);
  assert.deepEqual(history.points.cpu, [[102, 50]]);
  assert.deepEqual(history.points.output, [[102, 100]]);
  assert.deepEqual(history.points.refusals, [[102, 60]]);
  history.add(sample(0, 0), 104);
  assert.deepEqual(history.points.output.at(-1), [104, null]);
});

test("charts keep two hours", () => {
  const history = new MetricHistory();
  for (let seconds = 0; seconds <= 8000; seconds += 100) history.add(sample(0, 0), seconds);
  assert.equal(history.points.memory[0]?.[0], 800);
  assert.equal(history.points.memory.at(-1)?.[0], 8000);
});
