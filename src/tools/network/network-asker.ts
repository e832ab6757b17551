import { type ApprovalPolicy, overridePolicy } from "../policy/approval.ts";

/** Returns a policy that asks network questions through `asker`, and decides about commands as before. */
export function withNetworkAsker(policy: ApprovalPolicy, asker: ApprovalPolicy): ApprovalPolicy {
  return overridePolicy(policy, {
    // `policy` itself may ask too, through the same user interface.
    combined: asker.combined ?? false,
    ask: (request, signal, caller) => (request.kind === "network" ? asker : policy).ask(request, signal, caller),
  });
}
