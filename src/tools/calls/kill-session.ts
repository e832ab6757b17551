import { errorMessage } from "../../base/error-message.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { Tool } from "../tool.ts";
import { toolDefinitions } from "./tool-definitions.ts";
import { sessionTool } from "./validated-tool.ts";
import { buildAnswer, errorAnswer, waitForYield } from "./yield-call.ts";

/** Grace period between SIGTERM and SIGKILL. */
const GRACE_MS = 2000;
/** Additional wait for the exit event, which a remote host may send late. */
const END_WINDOW_MS = 5000;

/** Terminates an exec session, with a grace period or immediately. */
export function killSessionTool(context: ExecContext): Tool {
  return sessionTool(context, toolDefinitions.killSession, async (session, args, call) => {
    const { force = false, max_output_tokens: maxOutputTokens } = args;
    const sinceMs = context.clock.monotonic();
    try {
      if (!session.end)
        await session.process.terminate(force ? { type: "force" } : { type: "graceful", timeoutMs: GRACE_MS });
    } catch (error) {
      if (!session.end) return errorAnswer(`kill_session failed: ${errorMessage(error)}`);
    }
    await waitForYield(context, session, GRACE_MS + END_WINDOW_MS, call);
    return buildAnswer(context, session, { sinceMs, maxOutputTokens, signal: call.signal });
  });
}
