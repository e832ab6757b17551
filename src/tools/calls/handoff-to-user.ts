import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { Tool, ToolCallContext } from "../tool.ts";
import { handoffToUserSchema, toolDefinitions } from "./tool-definitions.ts";
import { parseArguments } from "./tool-schema.ts";
import { unknownSession } from "./write-stdin.ts";
import { buildAnswer, errorAnswer, withProgress } from "./yield-call.ts";

/** Default wait for a user, who has to notice, attach and type. */
const DEFAULT_TIMEOUT_MS = 300_000;
const MAX_TIMEOUT_MS = 3_600_000;

/** Asks a user to drive the terminal of an exec session, and waits until the user has returned it. */
export function handoffToUserTool(context: ExecContext): Tool {
  return {
    definition: toolDefinitions.handOver,
    async call(args, call = {}) {
      const parsed = parseArguments(handoffToUserSchema, args);
      if (parsed.type === "invalid") return errorAnswer(`handoff_to_user: ${parsed.message}`);
      const { session_id: sessionId, reason, timeout_ms: wanted = DEFAULT_TIMEOUT_MS } = parsed.value;
      const session = context.sessions.get(sessionId);
      if (!session) return unknownSession("handoff_to_user", sessionId);
      if (!session.command.tty)
        return errorAnswer(
          `session ${sessionId} has no terminal; rerun exec_command with tty=true to get one`,
        );
      if (!session.attachHint && !session.end)
        return errorAnswer(
          "handoff_to_user: users cannot attach to this terminal: the server provides no process handles",
        );
      const sinceMs = context.clock.now();
      session.promptState("user", reason);
      const waited = await describeHandoff(context, session, Math.min(wanted, MAX_TIMEOUT_MS), call);
      const { max_output_tokens: maxOutputTokens } = parsed.value;
      return buildAnswer(context, session, { sinceMs, maxOutputTokens, waited, signal: call.signal });
    },
  };
}

/** Waits for the user. Returns a description of how the wait ended. */
async function describeHandoff(
  context: ExecContext,
  session: ExecSession,
  timeoutMs: number,
  call: ToolCallContext,
): Promise<string> {
  return withProgress(context, session, call, async () => {
    const over = Promise.withResolvers<string>();
    const timer = context.clock.after(timeoutMs, () =>
      over.resolve(
        session.driver === "user"
          ? "timeout: a user still drives the terminal"
          : "timeout: no user attached",
      ),
    );
    const onAbort = () => over.resolve("the call was cancelled");
    call.signal?.addEventListener("abort", onAbort, { once: true });
    let hasDriven = session.driver === "user";
    const stop = session.listenDriver((driver) => {
      if (driver === "model" && hasDriven) over.resolve("a user drove the terminal and returned it");
      hasDriven = true;
    });
    void session.ended.then(() => over.resolve("the command has ended"));
    if (call.signal?.aborted) onAbort();
    try {
      return await over.promise;
    } finally {
      timer.cancel();
      stop();
      call.signal?.removeEventListener("abort", onAbort);
    }
  });
}
