import { useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import { bracketHost } from "../../base/ip-address.ts";
import type { NetworkQuestion, UserAnswer } from "../../protocol/network/network-schemas.ts";
import { formatCommand } from "../app/format.ts";
import type { Questions } from "./use-questions.ts";

const PROTOCOLS: Readonly<Record<NetworkQuestion["protocol"], string>> = {
  http: "HTTP",
  https_connect: "HTTPS or another protocol in a tunnel",
  socks5_tcp: "TCP through SOCKS5",
  socks5_udp: "UDP through SOCKS5",
};

const ANSWERS: readonly [UserAnswer, string][] = [
  ["once", "Allow once"],
  ["process", "For this process"],
  ["session", "For this session"],
  ["always", "Always"],
  ["deny", "Deny"],
];

/** The oldest question of a process. The process waits for the answer. */
export function QuestionCard({ handle, questions }: { handle: string; questions: Questions }) {
  const [problem, setProblem] = useState<string | null>(null);
  const mine = questions.open.filter((question) => question.handle === handle);
  const [question] = mine;
  const answer = (asked: NetworkQuestion, given: UserAnswer) => {
    questions.answer(asked, given).then(
      () => setProblem(null),
      (error: unknown) => setProblem(userMessage(error)),
    );
  };
  return (
    <>
      {problem !== null && (
        <p class="message" role="alert">
          <span>{problem}</span>
          <button type="button" class="plain" aria-label="Dismiss" onClick={() => setProblem(null)}>
            ✕
          </button>
        </p>
      )}
      {question && (
        <section key={question.questionId} class="message question network-question" aria-label="Network question">
          <div role="status">
            <h2>
              Allow network access to <span class="command">{`${bracketHost(question.host)}:${question.port}`}</span>?
            </h2>
            <dl>
              <dt>Protocol</dt>
              <dd>{PROTOCOLS[question.protocol]}</dd>
              <dt>Command</dt>
              <dd class="command">{formatCommand(question.argv)}</dd>
              <dt>Reason</dt>
              <dd>{question.reason}</dd>
            </dl>
          </div>
          <div class="answers">
            {ANSWERS.filter(([given]) => given !== "always" || question.canRemember).map(([given, label]) => (
              <button
                key={given}
                type="button"
                class={given === "deny" ? "danger" : undefined}
                onClick={() => answer(question, given)}
              >
                {label}
              </button>
            ))}
          </div>
          <p class="muted">
            The command waits.
            {!question.canRemember && " “Always” requires a rules file of the client that asks (--rules)."}
            {mine.length > 1 && ` ${mine.length - 1} more to follow.`}
          </p>
        </section>
      )}
    </>
  );
}
