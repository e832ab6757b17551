import { messageOf } from "../../protocol/message-of.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { Tool } from "../tool.ts";
import { definitions, killSessionSchema } from "./definitions.ts";
import { parseArguments } from "./tool-schema.ts";
import { answer, refusal, waitWindow } from "./window-call.ts";
import { unknownSession } from "./write-stdin.ts";

/** What is asked to end has this long before it is killed. */
const GRACE_MS = 2000;
/** After that the end is told as soon as it is known; a host far away may need a moment. */
const END_WINDOW_MS = 5000;

/** Ends a session: with time to clean up, or at once. */
export function killSessionTool(context: ExecContext): Tool {
  return {
    definition: definitions.killSession,
    async call(args, call = {}) {
      const parsed = parseArguments(killSessionSchema, args);
      if (parsed.type === "invalid") return refusal(`kill_session: ${parsed.message}`);
      const { session_id: sessionId, force = false, max_output_tokens: maxOutputTokens } = parsed.value;
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
    },
  };
}
