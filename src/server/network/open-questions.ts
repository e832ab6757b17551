// prose-ok-file: answer -- users answer network questions
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import type {
  AskNetworkParams,
  NetworkAnswer,
  NetworkQuestion,
  NetworkRequest,
  UserAnswer,
} from "../../protocol/network/network-schemas.ts";
import { canAccess, type Principal } from "../auth/principal.ts";
import type { SharedProcess } from "../session/shared-process.ts";

/** A target that requests of one process wait for. */
interface WaitingTarget {
  shared: SharedProcess;
  /** Number of requests that wait for the client's answer. */
  waiting: number;
  question: OpenQuestion | null;
}

interface OpenQuestion {
  shown: NetworkQuestion;
  resolve: (answer: UserAnswer | null) => void;
  answered: Promise<UserAnswer | null>;
}

/** A question that has ended. `reason` names the answer and its author, or why there is none. */
export interface EndedQuestion {
  handle: string;
  processId: string;
  host: string;
  port: number;
  protocol: NetworkRequest["protocol"];
  isAllowed: boolean;
  reason: string;
}

/**
 * Network questions that users of the console can answer. A question ends with the requests that wait for it, so it never
 * outlives its process or the client that asks.
 */
export class OpenQuestions {
  readonly #targets = new Map<string, WaitingTarget>();
  readonly #now: () => number;
  readonly #onEnded: (ended: EndedQuestion) => void;
  #count = 0;

  constructor(now: () => number, onEnded: (ended: EndedQuestion) => void = () => undefined) {
    this.#now = now;
    this.#onEnded = onEnded;
  }

  /** Runs `decide`, in which the client of the process decides about a request. The client may ask users meanwhile. */
  async during(
    shared: SharedProcess,
    request: NetworkRequest,
    decide: () => Promise<NetworkAnswer>,
  ): Promise<NetworkAnswer> {
    const key = keyOf(shared, request);
    const target = this.#targets.get(key) ?? { shared, waiting: 0, question: null };
    this.#targets.set(key, target);
    target.waiting++;
    let decision: NetworkAnswer | null = null;
    try {
      decision = await decide();
      return decision;
    } finally {
      target.waiting--;
      if (target.waiting === 0) {
        this.#targets.delete(key);
        this.#end(target, null, decision?.type === "allow", describeDecision(decision));
      }
    }
  }

  /** Opens a question, or joins the open one. Resolves to null if it ends without an answer of the console. */
  ask(
    shared: SharedProcess,
    { host, port, protocol, reason, canRemember }: AskNetworkParams,
  ): Promise<UserAnswer | null> {
    const target = this.#targets.get(keyOf(shared, { host, port }));
    if (!target)
      throw invalidRequest(`process ${shared.process.processId} has no request to ${host}:${port} that waits`);
    if (target.question) return target.question.answered;
    const { promise: answered, resolve } = Promise.withResolvers<UserAnswer | null>();
    const shown: NetworkQuestion = {
      questionId: String(++this.#count),
      handle: shared.handle,
      principal: shared.ownerId,
      argv: [...shared.process.listing().argv],
      ...{ host, port, protocol, reason, canRemember },
      askedAtMs: this.#now(),
    };
    target.question = { shown, resolve, answered };
    return answered;
  }

  /** Returns the questions about processes that the principal may act on, oldest first. */
  list(principal: Principal): NetworkQuestion[] {
    return [...this.#targets.values()].flatMap(({ shared, question }) =>
      question && canAccess(principal, shared.ownerId) ? [question.shown] : [],
    );
  }

  /** Answers a question. Returns it, or null if the principal sees no such question: the first answer wins. */
  answer(principal: Principal, questionId: string, answer: UserAnswer): NetworkQuestion | null {
    for (const target of this.#targets.values()) {
      const { question, shared } = target;
      if (question?.shown.questionId !== questionId || !canAccess(principal, shared.ownerId)) continue;
      if (answer === "always" && !question.shown.canRemember)
        throw invalidParams("answer `always` is not available: the client that asks has no rules file");
      this.#end(target, answer, answer !== "deny", `${answer} by ${principal.id}`);
      return question.shown;
    }
    return null;
  }

  #end(target: WaitingTarget, answer: UserAnswer | null, isAllowed: boolean, reason: string): void {
    const { question, shared } = target;
    if (!question) return;
    target.question = null;
    question.resolve(answer);
    const { handle, host, port, protocol } = question.shown;
    const { processId } = shared.process;
    this.#onEnded({ handle, processId, host, port, protocol, isAllowed, reason });
  }
}

function describeDecision(decision: NetworkAnswer | null): string {
  if (!decision) return "the request ended without an answer";
  return decision.type === "allow" ? "allowed by the client" : `denied by the client: ${decision.reason}`;
}

function keyOf(shared: SharedProcess, { host, port }: Pick<NetworkRequest, "host" | "port">): string {
  return JSON.stringify([shared.handle, host, port]);
}
