import type { ApprovalPolicy } from "../policy/approval.ts";

/** Returns a policy that asks network questions through `asker`, and decides about commands as before. */
export function withNetworkAsker(policy: ApprovalPolicy, asker: ApprovalPolicy): ApprovalPolicy {
  return {
    network: policy.network,
    credentials: policy.credentials,
    // `policy` itself may ask too, through the same user interface.
    combined: asker.combined ?? false,
    allowHost: policy.allowHost?.bind(policy),
    review: (request) => policy.review(request),
    ask: (request, signal, caller) => (request.kind === "network" ? asker : policy).ask(request, signal, caller),
  };
}
