import { errorMessage } from "../../base/error-message.ts";
import { type ApprovalAnswer, type ApprovalPolicy, type ApprovalRequest, overridePolicy } from "./approval.ts";

/** A decision about a command, or about a host that it requests. */
export interface ApprovalDecision {
  request: ApprovalRequest;
  isAllowed: boolean;
  /** Why it was refused. */
  reason?: string | undefined;
  /** Answer of the user: `once`, `process`, `session`, `prefix`, `always` or `deny`. Absent if rules decided. */
  answer?: string | undefined;
}

export interface ApprovalLog {
  /** Throws if the next decision cannot be recorded. */
  requireWritable(): void;
  record(decision: ApprovalDecision): void;
}

/**
 * Returns a policy that records each decision. While the log cannot be written, it refuses every command. A remembered
 * answer is one decision: later commands within its scope have no record.
 */
export function recordApprovals(policy: ApprovalPolicy, log: ApprovalLog): ApprovalPolicy {
  return overridePolicy(policy, {
    review(request) {
      const unwritable = findProblem(log);
      if (unwritable !== null) return { type: "refuse", reason: unwritable };
      const decision = policy.review(request);
      if (decision.type === "ask") return decision;
      const reason = decision.type === "refuse" ? decision.reason : undefined;
      log.record({ request, isAllowed: decision.type === "allow", reason });
      return decision;
    },
    async ask(request, signal, caller) {
      const answer = await policy.ask(request, signal, caller);
      const unwritable = findProblem(log);
      if (unwritable !== null) return { type: "refuse", reason: unwritable };
      log.record({ request, ...describeAnswer(answer) });
      return answer;
    },
  });
}

function describeAnswer(answer: ApprovalAnswer): Omit<ApprovalDecision, "request"> {
  if (answer.type === "allow") return { isAllowed: true, answer: answer.remember?.type ?? "once" };
  const { reason, isUnanswered = false } = answer;
  return { isAllowed: false, reason, answer: isUnanswered ? undefined : "deny" };
}

function findProblem(log: ApprovalLog): string | null {
  try {
    log.requireWritable();
    return null;
  } catch (error) {
    return errorMessage(error);
  }
}
