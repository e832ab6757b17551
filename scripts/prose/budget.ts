import type { Finding } from "./check-text.ts";
import type { Scan } from "./checkout.ts";
import { RULES } from "./rules.ts";

/** Maximum number of findings in the checkout. */
export interface Budget {
  /** Rules whose findings count against `core`. */
  coreRules: readonly string[];
  core: number;
  /** Findings of all rules per 1,000 words of prose. Identifiers do not count. */
  perThousandWords: number;
  /** Identifiers with a banned word. */
  names: number;
}

export interface BudgetLine {
  label: string;
  count: number;
  allowed: number;
  findings: Finding[];
}

/** Compares a scan of the whole checkout with the budget. */
export function compareWithBudget({ findings, words }: Scan, budget: Budget): BudgetLine[] {
  const unknown = budget.coreRules.filter((id) => !RULES.some((rule) => rule.id === id));
  if (unknown.length > 0) throw new Error(`prose budget: unknown core rule \`${unknown.join(", ")}\``);
  const names = findings.filter(({ kind }) => kind === "name");
  const prose = findings.filter(({ kind }) => kind !== "name");
  const core = prose.filter(({ rule }) => budget.coreRules.includes(rule));
  const perThousandWords = words === 0 ? 0 : (prose.length * 1000) / words;
  return [
    { label: "findings of core rules", count: core.length, allowed: budget.core, findings: core },
    {
      label: "findings per 1,000 words",
      count: Math.round(perThousandWords * 100) / 100,
      allowed: budget.perThousandWords,
      findings: prose,
    },
    { label: "identifiers with a banned word", count: names.length, allowed: budget.names, findings: names },
  ];
}
