import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { arch, cpus, loadavg, release, totalmem } from "node:os";
import { dirname } from "node:path";
import type { Measured } from "./native-client.ts";
import type { Metric } from "./scenarios.ts";

export interface Machine {
  cpu: string;
  cores: number;
  memoryGib: number;
  kernel: string;
  arch: string;
  node: string;
  loadAtStart: number;
}

export function describeMachine(): Machine {
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: cpus().length,
    memoryGib: Math.round(totalmem() / 1024 ** 3),
    kernel: release(),
    arch: arch(),
    node: process.version,
    loadAtStart: Number((loadavg()[0] ?? 0).toFixed(2)),
  };
}

/** One metric over all rounds: medians, and the ratio of procwire's median to that of the Codex server. */
export interface Row {
  scenario: string;
  label: string;
  unit: string;
  target: string;
  limit: number | null;
  peer: number | null;
  ours: number | null;
  negative?: string;
  /** Ratio in the unit of the target: times better than the Codex server, or share of its value. */
  ratio: number | null;
  met: boolean | null;
}

export function buildRow(
  scenario: string,
  metric: Metric,
  rounds: { peer: Measured[]; ours: Measured[] },
  limits: Measured,
): Row {
  const peer = median(rounds.peer.map((measured) => measured[metric.key]));
  const ours = median(rounds.ours.map((measured) => measured[metric.key]));
  const asPart = metric.asPart === true || (metric.target !== undefined && !("atLeast" in metric.target));
  const row: Row = {
    scenario,
    label: metric.label,
    unit: metric.unit,
    target: targetText(metric),
    limit: metric.limit === undefined ? null : (limits[metric.limit] ?? null),
    peer,
    ours,
    ratio: null,
    met: null,
    ...(metric.negative && { negative: metric.negative }),
  };
  const { target } = metric;
  if (target && "atMostValue" in target) return { ...row, met: ours === null ? null : ours <= target.atMostValue };
  const base = target && "atMostOfLimit" in target ? row.limit : peer;
  if (base === null || ours === null || base <= 0 || ours <= 0) return row;
  row.ratio = asPart || metric.better === "higher" ? ours / base : base / ours;
  if (target) row.met = "atLeast" in target ? row.ratio >= target.atLeast : row.ratio <= maxRatio(target);
  return row;
}

export function median(values: (number | undefined)[]): number | null {
  const sorted = values.filter((value) => value !== undefined).sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) return null;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

export function markdownTable(rows: Row[]): string {
  const cells = rows.map((row) => [
    row.label,
    row.limit === null ? "" : number(row.limit),
    withUnit(row, row.peer),
    withUnit(row, row.ours),
    row.ratio === null ? "" : `${number(row.ratio)}x`,
    row.target,
    row.met === null ? "" : row.met ? "yes" : "**no**",
  ]);
  return alignedTable(["metric", "limit", "peer", "procwire", "ratio", "target", "met"], cells);
}

/** Returns a Markdown table with aligned columns, as the formatter of this repository requires. */
export function alignedTable(head: string[], rows: string[][]): string {
  const widths = head.map((title, column) => Math.max(3, title.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: string[]) => `| ${widths.map((width, column) => (row[column] ?? "").padEnd(width)).join(" | ")} |`;
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...rows.map(line)].join("\n");
}

export function plainTable(rows: Row[]): string {
  const lines = rows.map((row) => [
    row.label,
    row.limit === null ? "" : number(row.limit),
    withUnit(row, row.peer),
    withUnit(row, row.ours),
    row.ratio === null ? "" : `${number(row.ratio)}x`,
    row.target,
    row.met === null ? "" : row.met ? "met" : "MISSED",
  ]);
  const all = [["metric", "limit", "peer", "ours", "ratio", "target", ""], ...lines];
  const widths = all[0]?.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0))) ?? [];
  return all
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Puts `text` between the two markers of a document, or creates the document if it is missing. */
export function replaceSection(path: string, section: string, text: string, whole: string): void {
  mkdirSync(dirname(path), { recursive: true });
  const open = `<!-- ${section}: written by the bench -->`;
  const close = `<!-- /${section} -->`;
  let document = existsSync(path) ? readFileSync(path, "utf8") : whole;
  if (!document.includes(open)) document = `${document.trimEnd()}\n\n${open}\n${close}\n`;
  const start = document.indexOf(open) + open.length;
  const end = document.indexOf(close);
  if (end < start) throw new Error(`${path}: the section ${section} has no end`);
  writeFileSync(path, `${document.slice(0, start)}\n${text}\n${document.slice(end)}`);
}

function withUnit(row: Row, value: number | null): string {
  if (value !== null && value < 0 && row.negative !== undefined) return row.negative;
  return `${number(value)} ${row.unit}`.trim();
}

function maxRatio(target: { atMost: number } | { atMostOfLimit: number }): number {
  return "atMost" in target ? target.atMost : target.atMostOfLimit;
}

function targetText({ target, unit }: Metric): string {
  if (target === undefined) return "";
  if ("atMostValue" in target) return `at most ${target.atMostValue} ${unit}`;
  return "atLeast" in target ? `at least ${target.atLeast}x` : `at most ${maxRatio(target)}x`;
}

/** Formats a value with three digits, the accuracy of these measurements. */
function number(value: number | null): string {
  if (value === null) return "-";
  return Math.abs(value) >= 100 ? Math.round(value).toString() : Number(value.toPrecision(3)).toString();
}
