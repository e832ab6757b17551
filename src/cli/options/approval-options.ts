import { withNetworkAsker } from "../../tools/network/network-asker.ts";
import type { ApprovalPolicy } from "../../tools/policy/approval.ts";
import { neverAsk } from "../../tools/policy/never-ask.ts";

/**
 * Builds the approval policy of `--rules` and `--ask`; the rules decide first. `networkAsker` asks network questions also
 * without `--ask`. Returns undefined if nothing is set.
 */
export async function approvalPolicy(
  rulesFile: string | undefined,
  asker: ApprovalPolicy | undefined,
  networkAsker?: ApprovalPolicy,
): Promise<ApprovalPolicy | undefined> {
  const policy = await loadPolicy(rulesFile, asker);
  return networkAsker ? withNetworkAsker(policy ?? neverAsk(), networkAsker) : policy;
}

async function loadPolicy(
  rulesFile: string | undefined,
  asker: ApprovalPolicy | undefined,
): Promise<ApprovalPolicy | undefined> {
  if (rulesFile === undefined) return asker;
  const { loadRulesFile } = await import("../../tools/policy/rules-file.ts");
  return loadRulesFile(rulesFile, asker);
}
