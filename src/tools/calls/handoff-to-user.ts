import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { Tool, ToolCallContext } from "../tool.ts";
import { definitions, handOverSchema } from "./tool-definitions.ts";
import { parseArguments } from "./tool-schema.ts";
import { unknownSession } from "./write-stdin.ts";
import { answer, refusal, whileWaiting } from "./yield-call.ts";

/** A person has to notice, come and type. */
const DEFAULT_TIMEOUT_MS = 300_000;
const MAX_TIMEOUT_MS = 3_600_000;

/** Asks for a person at a session's terminal, and waits until one has driven it and handed it back. */
export function handOverTool(context: ExecContext): Tool {
  return {
    definition: definitions.handOver,
    async call(args, call = {}) {
      const parsed = parseArguments(handOverSchema, args);
      if (parsed.type === "invalid") return refusal(`hand_over: ${parsed.message}`);
      const { session_id: sessionId, reason, timeout_ms: wanted = DEFAULT_TIMEOUT_MS } = parsed.value;
      const session = context.sessions.get(sessionId);
      if (!session) return unknownSession("hand_over", sessionId);
      if (!session.command.tty)
        return refusal(`session ${sessionId} has no terminal; rerun exec_command with tty=true to get one`);
      if (!session.attachHint && !session.end)
        return refusal("hand_over: nobody can attach here: the server of the processes gives them no handle");
      const sinceMs = context.clock.now();
      session.waitsFor("person", reason);
      const waited = await handedBack(context, session, Math.min(wanted, MAX_TIMEOUT_MS), call);
      const { max_output_tokens: maxOutputTokens } = parsed.value;
      return answer(context, session, { sinceMs, maxOutputTokens, waited, signal: call.signal });
    },
  };
}

/** In words, how the wait ended. */
async function handedBack(
  context: ExecContext,
  session: ExecSession,
  timeoutMs: number,
  call: ToolCallContext,
): Promise<string> {
  return whileWaiting(context, session, call, async () => {
    const over = Promise.withResolvers<string>();
    const timer = context.clock.after(timeoutMs, () =>
      over.resolve(
        session.driver === "person"
          ? "timeout: a person still drives the terminal"
          : "timeout: nobody has come",
      ),
    );
    const onAbort = () => over.resolve("the call was cancelled");
    call.signal?.addEventListener("abort", onAbort, { once: true });
    let hasDriven = session.driver === "person";
    const stop = session.listenDriver((driver) => {
      if (driver === "model" && hasDriven)
        over.resolve("a person has driven the terminal and handed it back");
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
