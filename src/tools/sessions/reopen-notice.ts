import { withNotice } from "../output/one-time-notice.ts";
import type { ToolOutput } from "../tool.ts";
import type { ExecSessionTable } from "./exec-session-table.ts";

/**
 * Returns a function that reports once to a model that the host restarted or the session expired. Earlier exec sessions
 * are lost.
 */
export function reopenNotice(
  reopenCount: () => number,
  sessions: ExecSessionTable,
): (output: ToolOutput) => ToolOutput {
  let reportedCount = reopenCount();
  return (output) => {
    const count = reopenCount();
    if (count === reportedCount) return output;
    reportedCount = count;
    // Lost sessions that no call has used since.
    const lost = sessions.list().filter(({ end }) => end?.type === "failed");
    return withNotice(output, formatNotice(lost.map(({ sessionId }) => sessionId)));
  };
}

function formatNotice(lost: readonly number[]): string {
  const ids = lost.length === 0 ? "" : ` (${lost.join(", ")})`;
  return `the server was restarted or its session expired; earlier sessions${ids} are lost, new ones work`;
}
