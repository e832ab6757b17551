import type { ApprovalPolicy } from "./approval.ts";

/**
 * Approval policy that asks the user of the tool's caller, for example through MCP elicitation. Sandboxed commands run
 * without an approval.
 */
export function askCaller(): ApprovalPolicy {
  return {
    combined: true,
    review: ({ sandbox }) => (sandbox === "none" ? { type: "ask" } : { type: "allow" }),
    ask: async (request, signal, caller) =>
      caller
        ? caller(request, signal)
        : { type: "refuse", reason: "approval required, but this caller cannot ask its user", isUnanswered: true },
  };
}
