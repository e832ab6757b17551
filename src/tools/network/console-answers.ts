import { abortable } from "../../async/abort.ts";
import type { UserAnswer } from "../../protocol/network/network-schemas.ts";
import type { ApprovalAnswer, ApprovalRequest, PromptCaller } from "../policy/approval.ts";
import { REJECTED_BY_USER } from "./network-denial-compat.ts";

/**
 * Asks the user here and the users of a web console at once. The first answer wins and withdraws the other question. Without
 * a user here, the answer of the console decides.
 */
export async function askBoth(
  askUser: PromptCaller,
  askConsole: (signal: AbortSignal) => Promise<UserAnswer | null>,
  request: ApprovalRequest,
  signal: AbortSignal,
): Promise<ApprovalAnswer> {
  const withdrawn = new AbortController();
  const either = AbortSignal.any([signal, withdrawn.signal]);
  try {
    const here = askUser(request, either);
    // A policy that never asks has refused by then, and no question appears in the console.
    const early = await Promise.race([here, new Promise<null>((resolve) => setImmediate(() => resolve(null)))]);
    if (early && !isUnanswered(early)) return early;
    const inConsole = askConsole(either).then((answer) => answer && toApproval(answer));
    return await abortable(firstAnswer(here, inConsole), signal);
  } finally {
    withdrawn.abort();
  }
}

/** Resolves with the answer that arrives first. Without an answer of the console, the one here decides. */
async function firstAnswer(
  here: Promise<ApprovalAnswer>,
  inConsole: Promise<ApprovalAnswer | null>,
): Promise<ApprovalAnswer> {
  const answered = here.then((answer) => (isUnanswered(answer) ? null : answer));
  const either = await Promise.race([answered, inConsole]);
  return either ?? (await answered) ?? (await inConsole) ?? here;
}

const isUnanswered = (answer: ApprovalAnswer) => answer.type === "refuse" && answer.isUnanswered === true;

function toApproval(answer: UserAnswer): ApprovalAnswer {
  if (answer === "deny") return { type: "refuse", reason: REJECTED_BY_USER };
  return answer === "once" ? { type: "allow" } : { type: "allow", remember: { type: answer } };
}
