import { blockedByPolicy } from "../network/network-denial-compat.ts";
import type { ApprovalPolicy } from "./approval.ts";

/**
 * Approval policy for unattended runs: every command runs in the configured sandbox; escalation is denied. The sandbox is
 * the only protection.
 */
export function neverAsk(): ApprovalPolicy {
  return {
    review: ({ kind }) =>
      kind === "command"
        ? { type: "allow" }
        : { type: "refuse", reason: "approvals are disabled, so commands stay in the sandbox" },
    ask: async ({ network }) => ({
      type: "refuse",
      reason: network ? blockedByPolicy(network) : "approvals are disabled",
    }),
  };
}
