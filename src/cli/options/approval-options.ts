import type { ApprovalPolicy } from "../../tools/policy/approval.ts";

/** What `--rules` and `--ask` come to: the rules decide first; undefined when there is neither. */
export async function approvalPolicy(
  rulesFile: string | undefined,
  asker: ApprovalPolicy | undefined,
): Promise<ApprovalPolicy | undefined> {
  if (rulesFile === undefined) return asker;
  const { loadRulesFile } = await import("../../tools/policy/rules-file.ts");
  return loadRulesFile(rulesFile, asker);
}
