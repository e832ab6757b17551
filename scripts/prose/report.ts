import type { BudgetLine } from "./budget.ts";
import type { Finding } from "./check-text.ts";
import { RULES } from "./rules.ts";
import { KINDS } from "./text-block.ts";

const COLUMNS = [...KINDS, "name"] as const;
/** Findings that a failed check prints. */
const MAX_SHOWN = 40;

export function formatFinding({ file, line, rule, text }: Finding): string {
  return `${file}:${line}: [${rule}] ${text}`;
}

/** Returns two tables: findings per directory and findings per rule, by kind. */
export function formatCounts(findings: readonly Finding[]): string {
  const byDirectory = [...Map.groupBy(findings, ({ file }) => reportDirectory(file))].sort(
    ([, a], [, b]) => b.length - a.length,
  );
  const byRule = Map.groupBy(findings, ({ rule }) => rule);
  return [
    tableRow("directory", ["total", ...COLUMNS]),
    ...byDirectory.map(([directory, matches]) => countRow(directory, matches)),
    countRow("all", findings),
    "",
    tableRow("rule", ["total", ...COLUMNS]),
    ...[...RULES.map(({ id }) => id), "name"].flatMap((id) => {
      const matches = byRule.get(id);
      return matches === undefined ? [] : [countRow(id, matches)];
    }),
  ].join("\n");
}

export function formatBudget(lines: readonly BudgetLine[]): string {
  return lines
    .map(({ label, count, allowed }) => `${count > allowed ? "over" : "ok  "} ${count} ${label}; allowed: ${allowed}`)
    .join("\n");
}

/** Returns the counts, the first findings over the budget and how to list the others; null if all lines are within it. */
export function formatFailure(lines: readonly BudgetLine[]): string | null {
  const over = lines.filter(({ count, allowed }) => count > allowed);
  if (over.length === 0) return null;
  const findings = [...new Set(over.flatMap((line) => line.findings))];
  const hidden = findings.length - MAX_SHOWN;
  return [
    formatBudget(lines),
    ...findings.slice(0, MAX_SHOWN).map(formatFinding),
    ...(hidden > 0 ? [`... and ${hidden} more`] : []),
    "list all findings: npm run -s check:prose -- --names --list",
    "list the findings on lines added since main: npm run -s check:prose -- --names --list --changed main",
    "rules and their advice: npm run -s check:prose -- --help",
  ].join("\n");
}

function reportDirectory(file: string): string {
  const directories = file.split("/").slice(0, -1);
  const isDeep = /^(?:src|native|test|bench)$/.test(directories[0] ?? "");
  return directories.slice(0, isDeep ? 2 : 1).join("/") || "(top level)";
}

function countRow(label: string, findings: readonly Finding[]): string {
  const counts = COLUMNS.map((kind) => findings.filter((finding) => finding.kind === kind).length || "");
  return tableRow(label, [findings.length, ...counts]);
}

function tableRow(label: string, cells: readonly (string | number)[]): string {
  return label.padEnd(22) + cells.map((cell) => String(cell).padStart(9)).join("");
}
