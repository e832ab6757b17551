import type { ApprovalPolicy } from "./approval.ts";

/**
 * Asks the caller of the tool, where its connection can carry a question back; over MCP the client's user answers.
 * Commands behind walls run without asking.
 */
export function askCaller(): ApprovalPolicy {
  return {
    together: true,
    review: ({ sandbox }) => (sandbox === "none" ? { type: "ask" } : { type: "allow" }),
    ask: async (request, signal, caller) =>
      caller
        ? caller(request, signal)
        : { type: "refuse", reason: "the user has to be asked, and this caller offers no way to ask" },
  };
}
