/** `docs/specification.md`: the costs of one server that CI compares with the code. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { alignedTable } from "../report.ts";

/** Measured values by name. A name is the first cell of its line in the document, and contains the unit. */
export type Costs = Record<string, number>;

const DOCUMENT = join(import.meta.dirname, "../../docs/specification.md");

/** Largest growth that passes, as a factor. */
const TOLERANCE = 1.05;
/** Growth of small numbers that passes in addition: half a call or half a wake-up. */
const SLACK = 0.5;

/** Sections of the document, by the marker of their table. */
export type Section = "calls" | "memory" | "files";

/** Returns a line for each cost that exceeds the document, or is not in it, and for each that is only in the document. */
export function exceededCosts(section: Section, measured: Costs): string[] {
  const documented = readCosts(section);
  const names = new Set([...Object.keys(documented), ...Object.keys(measured)]);
  return [...names].flatMap((name) => {
    const limit = documented[name];
    const value = measured[name];
    if (limit === undefined) return [`${name}: ${format(value ?? 0)}, not in docs/specification.md`];
    if (value === undefined) return [`${name}: in docs/specification.md, but no longer measured`];
    return value > limit * TOLERANCE + SLACK ? [`${name}: ${format(value)} instead of ${format(limit)}`] : [];
  });
}

function readCosts(section: Section): Costs {
  const { table } = splitDocument(section);
  const lines = table.matchAll(/^\| (.+?) +\| ([\d,.]+) +\|$/gm);
  return Object.fromEntries(Array.from(lines, ([, name, value]) => [name, Number(value?.replaceAll(",", ""))]));
}

export function writeCosts(section: Section, costs: Costs): void {
  const { before, after } = splitDocument(section);
  const rows = Object.entries(costs).map(([name, value]) => [name, format(value)]);
  writeFileSync(DOCUMENT, `${before}\n${alignedTable(["cost", "at most"], rows)}\n${after}`);
}

function splitDocument(section: Section): { before: string; table: string; after: string } {
  const text = readFileSync(DOCUMENT, "utf8");
  const open = `<!-- ${section}: written by npm run specification -->`;
  const start = text.indexOf(open) + open.length;
  const end = text.indexOf(`<!-- /${section} -->`);
  if (start < open.length || end < start) throw new Error(`docs/specification.md has no section ${section}`);
  return { before: text.slice(0, start), table: text.slice(start, end), after: text.slice(end) };
}

/** Formats a cost: one decimal below 100, groups of three digits above. */
export function format(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: value < 100 ? 1 : 0 });
}
