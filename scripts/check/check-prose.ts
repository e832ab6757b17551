/**
 * `npm run check:prose`: checks comments, documents, help texts, error messages, test titles and identifiers.
 * docs/style.md and docs/glossary.md give the reasons for the rules.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import budget from "../prose/budget.json" with { type: "json" };
import { compareWithBudget } from "../prose/budget.ts";
import { type Scan, scanCheckout } from "../prose/checkout.ts";
import { formatBudget, formatCounts, formatFailure, formatFinding } from "../prose/report.ts";
import { RULES, type Rule } from "../prose/rules.ts";

const ROOT = join(import.meta.dirname, "../..");

const HELP = `Usage: node scripts/check/check-prose.ts [OPTIONS]

Check the prose of the checkout against scripts/prose/budget.json.
With --changed, --path or --rule, every finding is an error.

  --list          print every finding as FILE:LINE: [RULE] TEXT
  --changed BASE  only lines added since the merge base with BASE
  --path REGEX    only files whose path matches
  --rule ID       only this rule; repeatable
  --names         also print identifiers with a banned word
  --json          print the findings as JSON
  --help          print this text

Exit codes: 0 within the budget, 1 over the budget or findings in a narrowed check, 2 invalid arguments

Suppress a finding on its line or on the line before:
  // prose-ok: RULE -- reason
Suppress a rule in a file:
  // prose-ok-file: RULE -- reason

Rules:
${RULES.map(({ id, advice }) => `  ${id.padEnd(20)} ${advice}`).join("\n")}
`;

/** Returns the failure of the whole checkout, or null if it is within the budget. */
export function checkProse(): string | null {
  return formatFailure(compareWithBudget(scanCheckout(ROOT), budget));
}

/** Runs the command with `args`, writes to stdout and returns the exit code. */
function main(args: string[]): number {
  const { values } = parseArgs({
    args,
    options: {
      list: { type: "boolean", default: false },
      changed: { type: "string" },
      path: { type: "string" },
      rule: { type: "string", multiple: true },
      names: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    print(HELP);
    return 0;
  }
  const { changed, rule: ids, list, names, json } = values;
  const path = values.path === undefined ? undefined : new RegExp(values.path);
  const isNarrowed = changed !== undefined || path !== undefined || ids !== undefined;
  const whole = scanCheckout(ROOT, { changed, path, rules: ids === undefined ? RULES : selectRules(ids) });
  const scan: Scan = { ...whole, findings: whole.findings.filter(({ kind }) => names || kind !== "name") };
  const { findings, files, words } = scan;
  const lines = isNarrowed ? [] : compareWithBudget(whole, budget);
  if (json) print(JSON.stringify(scan));
  else {
    if (list) for (const finding of findings) print(formatFinding(finding));
    print(formatCounts(findings));
    print(`\n${findings.length} findings in ${files} files with ${words} words of prose`);
    if (!isNarrowed) print(formatBudget(lines));
  }
  return isNarrowed ? Math.min(findings.length, 1) : Number(formatFailure(lines) !== null);
}

function selectRules(ids: readonly string[]): Rule[] {
  const unknown = ids.find((id) => !RULES.some((rule) => rule.id === id));
  if (unknown !== undefined) throw new Error(`unknown rule \`${unknown}\`; see --help`);
  return RULES.filter(({ id }) => ids.includes(id));
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

if (import.meta.main) {
  try {
    process.exitCode = main(process.argv.slice(2));
  } catch (error) {
    process.stderr.write(`check-prose: ${error instanceof Error ? error.message : error}\n`);
    process.exitCode = 2;
  }
}
