import type { ApprovalPolicy } from "../../tools/policy/approval.ts";

/** Builds the approval policy of `--rules` and `--ask`; the rules decide first. Returns undefined if neither is set. */
export async function approvalPolicy(
  rulesFile: string | undefined,
  asker: ApprovalPolicy | undefined,
): Promise<ApprovalPolicy | undefined> {
  if (rulesFile === undefined) return asker;
  const { loadRulesFile } = await import("../../tools/policy/rules-file.ts");
  return loadRulesFile(rulesFile, asker);
}
