import { shellQuoteAll } from "../../base/text/printable-text.ts";
import { isObject } from "../../base/type-guards.ts";
import { REJECTED_BY_USER } from "../network/network-denial-compat.ts";
import type { ApprovalAnswer, ApprovalRequest } from "../policy/approval.ts";
import { approvalPrompt } from "../policy/approval-prompt.ts";

/** Choices of the user. Most clients display these texts. */
const ONCE = "allow once";
const SESSION = "allow for session";
const PREFIX = "allow all that begin like this";
const REFUSE = "refuse";
const PROCESS = "allow for this command";
const ALWAYS = "always allow this host";

/** Converts an approval request to an MCP form. */
export function toElicitationForm(request: ApprovalRequest) {
  const { prefixRule, network } = request;
  const choices = network
    ? [ONCE, PROCESS, SESSION, ...(network.canRemember ? [ALWAYS] : []), REFUSE]
    : [ONCE, SESSION, ...(prefixRule ? [PREFIX] : []), REFUSE];
  const prefix = prefixRule ? `\n"${PREFIX}" allows every command that begins with: ${shellQuoteAll(prefixRule)}` : "";
  return {
    mode: "form" as const,
    message: `${approvalPrompt(request)}${prefix}`,
    requestedSchema: {
      type: "object" as const,
      properties: {
        decision: {
          type: "string" as const,
          title: "Decision",
          enum: choices,
        },
      },
      required: ["decision"],
    },
  };
}

/** Converts the response of a client. Everything except a clear approval is a rejection. */
export function parseElicitation(
  { prefixRule, network }: ApprovalRequest,
  response: { action: string; content?: Record<string, unknown> | undefined },
): ApprovalAnswer {
  if (response.action === "cancel") return { type: "refuse", reason: "the user dismissed the prompt" };
  const rejected = network ? REJECTED_BY_USER : "the user rejected it";
  if (response.action !== "accept") return { type: "refuse", reason: rejected };
  switch (response.content?.decision) {
    case ONCE:
      return { type: "allow" };
    case SESSION:
      return { type: "allow", remember: { type: "session" } };
    case PREFIX:
      if (prefixRule) return { type: "allow", remember: { type: "prefix", prefix: prefixRule } };
      break;
    case PROCESS:
      if (network) return { type: "allow", remember: { type: "process" } };
      break;
    case ALWAYS:
      if (network?.canRemember) return { type: "allow", remember: { type: "always" } };
      break;
    case REFUSE:
      return { type: "refuse", reason: rejected };
  }
  return { type: "refuse", reason: "the answer is not one of the choices" };
}

/** Reports whether the client supports form elicitation. An empty capability means forms, as in the first MCP versions. */
export function supportsElicitation(capabilities: unknown): boolean {
  if (!isObject(capabilities) || !isObject(capabilities.elicitation)) return false;
  return "form" in capabilities.elicitation || Object.keys(capabilities.elicitation).length === 0;
}
