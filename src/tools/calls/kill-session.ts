import { messageOf } from "../../base/error-message.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { Tool } from "../tool.ts";
import { definitions, killSessionSchema } from "./tool-definitions.ts";
import { checkedTool } from "./validated-tool.ts";
import { unknownSession } from "./write-stdin.ts";
import { answer, refusal, waitWindow } from "./yield-call.ts";

/** What is asked to end has this long before it is killed. */
const GRACE_MS = 2000;
/** After that the end is told as soon as it is known; a host far away may need a moment. */
const END_WINDOW_MS = 5000;

/** Ends a session: with time to clean up, or at once. */
export function killSessionTool(context: ExecContext): Tool {
  return checkedTool(definitions.killSession, killSessionSchema, async (args, call) => {
    const { session_id: sessionId, force = false, max_output_tokens: maxOutputTokens } = args;
    const session = context.sessions.get(sessionId);
    if (!session) return unknownSession("kill_session", sessionId);
    const sinceMs = context.clock.now();
    try {
      if (!session.end)
        await session.process.terminate(
          force ? { type: "force" } : { type: "graceful", timeoutMs: GRACE_MS },
        );
    } catch (error) {
      if (!session.end) return refusal(`kill_session failed: ${messageOf(error)}`);
    }
    await waitWindow(context, session, GRACE_MS + END_WINDOW_MS, call);
    return answer(context, session, { sinceMs, maxOutputTokens, signal: call.signal });
  });
}
