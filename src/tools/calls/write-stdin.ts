import { messageOf } from "../../base/error-message.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { Tool, ToolOutput } from "../tool.ts";
import { definitions, writeStdinSchema } from "./tool-definitions.ts";
import { checkedTool } from "./validated-tool.ts";
import { answer, refusal, ttyState, waitWindow } from "./yield-call.ts";
import { pollWindowMs, writeWindowMs } from "./yield-window.ts";

/** What Ctrl-C types. Only a terminal turns it into a signal; without one it is sent as a signal from here. */
const INTERRUPT = "\u0003";

/** Writes to a session, or only looks, and answers what came since the last call. */
export function writeStdinTool(context: ExecContext): Tool {
  return {
    tellsItself: true,
    ...checkedTool(definitions.writeStdin, writeStdinSchema, async (args, call) => {
      const { session_id: sessionId, chars = "", yield_time_ms: yieldMs } = args;
      const session = context.sessions.get(sessionId);
      if (!session) return unknownSession("write_stdin", sessionId);
      const sinceMs = context.clock.now();
      const limits = context.yieldLimits;
      const windowMs = chars === "" ? pollWindowMs(yieldMs, limits) : writeWindowMs(yieldMs, limits);
      const refused = new AbortController();
      const signal = call.signal ? AbortSignal.any([call.signal, refused.signal]) : refused.signal;
      const window = waitWindow(context, session, windowMs, { ...call, signal });
      if (chars !== "") {
        const writing = inTurn(context, session, chars);
        context.tasks.run(() => writing);
        // A process that does not read makes the writer wait; the model's window ends all the same.
        const problem = await Promise.race([writing, window.then(() => null)]);
        if (problem !== null && !session.end) {
          refused.abort();
          await window;
          return refusal(problem);
        }
      }
      await window;
      const maxOutputTokens = args.max_output_tokens;
      return answer(context, session, { sinceMs, maxOutputTokens, signal: call.signal });
    }),
  };
}

/** In the words models know, though the argument is called session_id. */
export function unknownSession(tool: string, sessionId: number): ToolOutput {
  return refusal(`${tool} failed: Unknown process id ${sessionId}`);
}

/** Writes keep their order; an interrupt does not queue behind a write that the process does not read. */
function inTurn(context: ExecContext, session: ExecSession, chars: string): Promise<string | null> {
  const { writes } = context;
  if (chars === INTERRUPT && (!session.command.tty || writes.busy(session)))
    return write(context, session, chars, "signal");
  return writes.run(session, () => write(context, session, chars, session.command.tty ? "byte" : "signal"));
}

/** Resolves with what went wrong, in words for the model, or null. */
async function write(
  context: ExecContext,
  session: ExecSession,
  chars: string,
  interruptAs: "byte" | "signal",
): Promise<string | null> {
  const tty = await ttyState(context, session);
  if (session.end) return null;
  const isSecret = tty?.canonical === true && !tty.echo;
  session.interacted(isSecret ? null : chars);
  try {
    for (const part of interruptAs === "byte" ? [chars] : chars.split(/(\u0003)/)) {
      if (part === "") continue;
      if (part === INTERRUPT && interruptAs === "signal") await session.process.signal("interrupt");
      else {
        const { status } = await session.process.write(new TextEncoder().encode(part));
        if (status === "stdinClosed") return STDIN_CLOSED;
        if (status === "unknownProcess") return `write_stdin failed: Unknown process id ${session.sessionId}`;
      }
    }
    return null;
  } catch (error) {
    const why = messageOf(error);
    return `write_stdin failed: ${why}`;
  }
}

const STDIN_CLOSED =
  "write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true to keep stdin open";
