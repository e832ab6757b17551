import type { NetworkQuestion } from "../../protocol/network/network-schemas.ts";
import { toHref } from "../app/route.ts";

/** Link to the process with the oldest open question. The live region stays in the document without a question. */
export function QuestionLink({ questions }: { questions: readonly NetworkQuestion[] }) {
  const [oldest] = questions;
  const count = questions.length;
  return (
    <span class="question-link" role="status">
      {oldest && (
        <a class="badge waiting" href={toHref({ page: "process", handle: oldest.handle })}>
          {count}
          <span class="words"> {count === 1 ? "network question" : "network questions"}</span>
        </a>
      )}
    </span>
  );
}
