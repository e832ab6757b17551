import { withNotice } from "../output/one-time-notice.ts";
import type { ToolOutput } from "../tool.ts";
import type { SessionTable } from "./exec-session-table.ts";

/** Tells a model once, on top of an answer, that the host was restarted or the session expired, and that the earlier sessions are gone. */
export class RenewalNotice {
  readonly #renewals: () => number;
  readonly #sessions: SessionTable;
  #told: number;

  constructor(renewals: (() => number) | undefined, sessions: SessionTable) {
    this.#renewals = renewals ?? (() => 0);
    this.#sessions = sessions;
    this.#told = this.#renewals();
  }

  addTo(output: ToolOutput): ToolOutput {
    const renewals = this.#renewals();
    if (renewals === this.#told) return output;
    this.#told = renewals;
    return withNotice(output, noticeOf(this.#lost()));
  }

  /** Lost sessions that no call has named since. */
  #lost(): number[] {
    return this.#sessions
      .list()
      .filter(({ end }) => end?.type === "failed")
      .map(({ sessionId }) => sessionId);
  }
}

function noticeOf(lost: readonly number[]): string {
  const which = lost.length === 0 ? "" : ` (${lost.join(", ")})`;
  return `the server was restarted or its session expired; earlier sessions${which} are gone, new ones work`;
}
