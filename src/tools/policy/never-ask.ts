import type { ApprovalPolicy } from "./approval.ts";

/**
 * Nobody is asked: every command runs behind the walls that are configured, if any, and none leaves them. For runs
 * without a person, where the walls are what protects.
 */
export function neverAsk(): ApprovalPolicy {
  return {
    review: ({ kind }) =>
      kind === "command"
        ? { type: "allow" }
        : { type: "refuse", reason: "nobody can be asked, so commands stay inside the sandbox" },
    ask: async () => ({ type: "refuse", reason: "nobody can be asked" }),
  };
}
