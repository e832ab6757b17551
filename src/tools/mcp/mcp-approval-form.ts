import type { ApprovalAnswer, ApprovalRequest } from "../policy/approval.ts";
import { questionOf, shownPrefix } from "../policy/question.ts";

/** What a person chooses from; the words are what most clients show. */
const ONCE = "allow once";
const SESSION = "allow for session";
const PREFIX = "allow all that begin like this";
const REFUSE = "refuse";

/** A request for approval as an MCP form. */
export function formFor(request: ApprovalRequest) {
  const { prefixRule } = request;
  const prefix = prefixRule
    ? `\n"${PREFIX}" allows every command that begins with: ${shownPrefix(prefixRule)}`
    : "";
  return {
    mode: "form" as const,
    message: `${questionOf(request)}${prefix}`,
    requestedSchema: {
      type: "object" as const,
      properties: {
        decision: {
          type: "string" as const,
          title: "Decision",
          enum: [ONCE, SESSION, ...(prefixRule ? [PREFIX] : []), REFUSE],
        },
      },
      required: ["decision"],
    },
  };
}

/** What a client answered to the form; anything that is no clear yes is a no. */
export function answerTo(
  { prefixRule }: ApprovalRequest,
  response: { action: string; content?: Record<string, unknown> | undefined },
): ApprovalAnswer {
  if (response.action === "cancel") return { type: "refuse", reason: "the user dismissed the question" };
  if (response.action !== "accept") return { type: "refuse", reason: "the user said no" };
  switch (response.content?.decision) {
    case ONCE:
      return { type: "allow" };
    case SESSION:
      return { type: "allow", remember: { type: "session" } };
    case PREFIX:
      if (prefixRule) return { type: "allow", remember: { type: "prefix", prefix: prefixRule } };
      return { type: "refuse", reason: "the answer was none of the choices" };
    case REFUSE:
      return { type: "refuse", reason: "the user said no" };
    default:
      return { type: "refuse", reason: "the answer was none of the choices" };
  }
}

/** Has a client said that its user can be asked by a form? An empty capability means forms, as it did at first. */
export function canAsk(capabilities: unknown): boolean {
  if (!isRecord(capabilities) || !isRecord(capabilities.elicitation)) return false;
  return "form" in capabilities.elicitation || Object.keys(capabilities.elicitation).length === 0;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
