import { onAbort } from "../../async/abort.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { Tool, ToolCallContext } from "../tool.ts";
import { toolDefinitions } from "./tool-definitions.ts";
import { sessionTool } from "./validated-tool.ts";
import { buildAnswer, errorAnswer, missingTerminal, withProgress } from "./yield-call.ts";

/** Default wait for a user, who has to notice, attach and type. */
const DEFAULT_TIMEOUT_MS = 300_000;
const MAX_TIMEOUT_MS = 3_600_000;

/** Asks a user to drive the terminal of an exec session, and waits until the user has returned it. */
export function handoffToUserTool(context: ExecContext): Tool {
  return sessionTool(context, toolDefinitions.handoffToUser, async (session, args, call) => {
    const { reason, timeout_ms: requestedMs = DEFAULT_TIMEOUT_MS, max_output_tokens: maxOutputTokens } = args;
    if (!session.command.tty) return missingTerminal(session);
    if (!session.attachHint && !session.end)
      return errorAnswer(
        "handoff_to_user: users cannot attach to this terminal: the server provides no process handles",
      );
    const sinceMs = context.clock.monotonic();
    session.promptState("user", reason);
    const waited = await waitForUser(context, session, Math.min(requestedMs, MAX_TIMEOUT_MS), call);
    return buildAnswer(context, session, { sinceMs, maxOutputTokens, waited, signal: call.signal });
  });
}

/** Waits for the user. Returns a description of how the wait ended. */
async function waitForUser(
  context: ExecContext,
  session: ExecSession,
  timeoutMs: number,
  call: ToolCallContext,
): Promise<string> {
  return withProgress(context, session, call, async () => {
    const waitEnd = Promise.withResolvers<string>();
    const timer = context.clock.after(timeoutMs, () =>
      waitEnd.resolve(
        session.driver === "user" ? "timeout: a user still drives the terminal" : "timeout: no user attached",
      ),
    );
    const stopAbort = call.signal && onAbort(call.signal, () => waitEnd.resolve("the call was cancelled"));
    let hasDriven = session.driver === "user";
    const stopDriver = session.listenDriver((driver) => {
      if (driver === "model" && hasDriven) waitEnd.resolve("a user drove the terminal and returned it");
      hasDriven = true;
    });
    void session.ended.then(() => waitEnd.resolve("the command has ended"));
    try {
      return await waitEnd.promise;
    } finally {
      timer.cancel();
      stopDriver();
      stopAbort?.();
    }
  });
}
