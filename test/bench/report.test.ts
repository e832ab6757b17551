import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { plotPanels } from "../../bench/plot.ts";
import { buildRow, markdownTable, median, replaceSection } from "../../bench/report.ts";
import { type Metric, scenarios } from "../../bench/scenarios.ts";
import { Scratch } from "../files/scratch.ts";

const metric = (more: Partial<Metric>): Metric => ({
  label: "m",
  key: "k",
  unit: "ms",
  better: "lower",
  ...more,
});
const row = (more: Partial<Metric>, peer: number[], ours: number[]) =>
  buildRow("s", metric(more), { peer: peer.map((k) => ({ k })), ours: ours.map((k) => ({ k })) }, { floor: 0.5 });

test("the median is the middle one, or between the two in the middle", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 2, 3]), 2.5);
  assert.equal(median([undefined, 7]), 7);
  assert.equal(median([]), null);
});

test("less is better: the ratio says how many times faster ours is", () => {
  const { ratio, met, peer, ours, limit } = row({ target: { atLeast: 5 }, limit: "floor" }, [10, 11, 9], [2, 1, 3]);
  assert.deepEqual([ratio, met, peer, ours, limit], [5, true, 10, 2, 0.5]);
  assert.equal(row({ target: { atLeast: 5.1 } }, [10], [2]).met, false);
});

test("more is better: the ratio says how many times as much ours does", () => {
  assert.equal(row({ better: "higher", target: { atLeast: 2 } }, [100], [250]).ratio, 2.5);
});

test("an upper bound is given as a fraction of the peer's figure", () => {
  assert.deepEqual(
    [row({ target: { atMost: 0.35 } }, [10], [3]).ratio, row({ target: { atMost: 0.35 } }, [10], [4]).met],
    [0.3, false],
  );
});

test("a bound by the limit is given as a multiple of it, and needs no peer", () => {
  const { ratio, met, target } = row({ target: { atMostOfLimit: 1.5 }, limit: "floor" }, [], [0.8]);
  assert.deepEqual([ratio, met, target], [1.6, false, "at most 1.5x"]);
});

test("a bound of the value has no ratio, and needs no peer", () => {
  const { ratio, met, target } = row({ target: { atMostValue: 25 } }, [], [25]);
  assert.deepEqual([ratio, met, target], [null, true, "at most 25 ms"]);
});

test("a number that stands for `never` has no ratio and is shown as text", () => {
  const never = row({ negative: "not within 4 s" }, [-1], [2]);
  assert.equal(never.ratio, null);
  assert.match(markdownTable([never]), /\| not within 4 s \| 2 ms +\|/);
});

test("every scenario and every metric has a unique name", () => {
  const names = scenarios.map(({ name }) => name);
  const labels = scenarios.flatMap(({ metrics }) => metrics.map(({ label }) => label));
  assert.equal(new Set(names).size, names.length);
  assert.equal(new Set(labels).size, labels.length);
});

test("a section of a document is replaced, the rest is left alone", (t) => {
  const path = new Scratch(t).path("docs/p.md");
  replaceSection(path, "table", "one", "# Head\n");
  replaceSection(path, "other", "kept", "");
  replaceSection(path, "table", "two", "");
  const text = readFileSync(path, "utf8");
  assert.match(text, /^# Head\n/);
  assert.match(text, /<!-- table: written by the bench -->\ntwo\n<!-- \/table -->/);
  assert.match(text, /kept/);
  assert.doesNotMatch(text, /one/);
});

test("a plot has a line for each series and leaves out points that cannot be drawn", () => {
  const points = [
    { x: 1, y: 2 },
    { x: 10, y: 20 },
    { x: 100, y: Number.NaN },
  ];
  const series = ["peer", "procwire"].map((name) => ({ name, points }));
  const svg = plotPanels([{ title: "a < b", x: "n", y: "ms", series }]);
  assert.equal(svg.match(/<polyline/g)?.length, 2);
  assert.equal(svg.match(/<circle/g)?.length, 4);
  assert.match(svg, /a &lt; b/);
  assert.doesNotMatch(svg, /NaN/);
});
