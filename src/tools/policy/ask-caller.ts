import type { ApprovalPolicy } from "./approval.ts";

/**
 * Asks whoever made the call, as far as the way it came by can ask back; a call by MCP is answered by the client's user.
 * Commands behind walls run without asking.
 */
export function askCaller(): ApprovalPolicy {
  return {
    together: true,
    review: ({ sandbox }) => (sandbox === "none" ? { type: "ask" } : { type: "allow" }),
    ask: async (request, signal, caller) =>
      caller
        ? caller(request, signal)
        : { type: "refuse", reason: "somebody has to be asked, and who made the call cannot be" },
  };
}
