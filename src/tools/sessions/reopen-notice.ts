import { withNotice } from "../output/one-time-notice.ts";
import type { ToolOutput } from "../tool.ts";
import type { ExecSessionTable } from "./exec-session-table.ts";

/** Reports once to a model that the host restarted or the session expired, and that earlier exec sessions are lost. */
export class ReopenNotice {
  readonly #reopenCount: () => number;
  readonly #sessions: ExecSessionTable;
  #reportedCount: number;

  constructor(reopenCount: (() => number) | undefined, sessions: ExecSessionTable) {
    this.#reopenCount = reopenCount ?? (() => 0);
    this.#sessions = sessions;
    this.#reportedCount = this.#reopenCount();
  }

  addTo(output: ToolOutput): ToolOutput {
    const count = this.#reopenCount();
    if (count === this.#reportedCount) return output;
    this.#reportedCount = count;
    return withNotice(output, noticeOf(this.#lost()));
  }

  /** Returns the ids of lost sessions that no call has used since. */
  #lost(): number[] {
    return this.#sessions
      .list()
      .filter(({ end }) => end?.type === "failed")
      .map(({ sessionId }) => sessionId);
  }
}

function noticeOf(lost: readonly number[]): string {
  const which = lost.length === 0 ? "" : ` (${lost.join(", ")})`;
  return `the server was restarted or its session expired; earlier sessions${which} are lost, new ones work`;
}
