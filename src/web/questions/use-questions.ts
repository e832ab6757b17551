import { useState } from "preact/hooks";
import type { ExecServerClient } from "../../client/browser.ts";
import type { NetworkQuestion, UserAnswer } from "../../protocol/network/network-schemas.ts";
import { usePolled } from "../app/use-polling.ts";

const POLL_INTERVAL_MS = 2_000;

/** Open network questions, and the function that answers one. */
export interface Questions {
  open: readonly NetworkQuestion[];
  /** Rejects if the question has ended, for example by an answer on the terminal. */
  answer: (question: NetworkQuestion, answer: UserAnswer) => Promise<void>;
}

/** Polls the network questions that the user may answer. The list stays empty if the user may answer none. */
export function useQuestions(client: ExecServerClient | null): Questions {
  /** Counts the answers of this page, so that the list is loaded at once. */
  const [answers, setAnswers] = useState(0);
  const { value } = usePolled(
    async (signal) => (client ? (await client.call("network/questions", {}, { signal })).questions : []),
    POLL_INTERVAL_MS,
    [client, answers],
  );
  return {
    open: value ?? [],
    answer: async ({ questionId }, answer) => {
      const sent = client?.call("network/answer", { questionId, answer }, { resend: "unsent" });
      const result = await sent?.finally(() => setAnswers((count) => count + 1));
      if (result?.accepted === false) throw new Error("the question was answered elsewhere, or its request has ended");
    },
  };
}
