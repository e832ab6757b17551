// prose-ok-file: answer -- users answer network questions
import { abortable } from "../../async/abort.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import type { Principal } from "../auth/principal.ts";
import type { Handlers } from "../rpc/handler-types.ts";
import type { Session } from "../session/session.ts";
import type { OpenQuestions } from "./open-questions.ts";

export interface QuestionMethodDeps {
  session: () => Session;
  principal: Principal;
  questions: OpenQuestions;
  /** Whether the server has a web console, whose users can answer. */
  hasConsole: () => boolean;
}

/** The methods on network questions that users of the console answer. */
export function questionMethods(
  deps: QuestionMethodDeps,
): Handlers<"network/ask" | "network/questions" | "network/answer"> {
  const { session, principal, questions, hasConsole } = deps;
  return {
    "network/ask": async (params, { disconnected }) => {
      if (!hasConsole()) throw invalidRequest("this server has no web console that could ask its users");
      const { role, shared } = await session().getProcess(params.processId);
      if (role !== "owner") throw invalidRequest(`process ${params.processId} was not started by this session`);
      return { answer: (await abortable(questions.ask(shared, params), disconnected)) ?? undefined };
    },
    "network/questions": async () => ({ questions: questions.list(principal) }),
    "network/answer": async ({ questionId, answer }) => {
      const question = questions.answer(principal, questionId, answer);
      return question ? { accepted: true, host: question.host, port: question.port } : { accepted: false };
    },
  };
}
