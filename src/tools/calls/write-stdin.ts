import { errorMessage } from "../../base/error-message.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { Tool } from "../tool.ts";
import { toolDefinitions } from "./tool-definitions.ts";
import { sessionTool } from "./validated-tool.ts";
import { buildAnswer, errorAnswer, readTtyState, waitForYield } from "./yield-call.ts";
import { pollWindowMs, writeWindowMs } from "./yield-window.ts";

/** Ctrl-C. A terminal converts it to SIGINT; without a terminal, this tool sends the signal. */
const INTERRUPT = "\u0003";

/** Writes to an exec session, or only waits. Returns the output since the last call. */
export function writeStdinTool(context: ExecContext): Tool {
  return {
    emitsOwnItems: true,
    ...sessionTool(context, toolDefinitions.writeStdin, async (session, args, call) => {
      const { chars = "", yield_time_ms: yieldMs } = args;
      const sinceMs = context.clock.monotonic();
      const limits = context.yieldLimits;
      const windowMs = chars === "" ? pollWindowMs(yieldMs, limits) : writeWindowMs(yieldMs, limits);
      const rejected = new AbortController();
      const signal = call.signal ? AbortSignal.any([call.signal, rejected.signal]) : rejected.signal;
      const window = waitForYield(context, session, windowMs, { ...call, signal });
      if (chars !== "") {
        const writing = enqueueWrite(context, session, chars);
        context.tasks.run(() => writing);
        // A process that does not read blocks the write, but the yield window still ends in time.
        const problem = await Promise.race([writing, window.then(() => null)]);
        if (problem !== null && !session.end) {
          rejected.abort();
          await window;
          return errorAnswer(problem);
        }
      }
      await window;
      const maxOutputTokens = args.max_output_tokens;
      return buildAnswer(context, session, { sinceMs, maxOutputTokens, signal: call.signal });
    }),
  };
}

/** Queues a write in order. An interrupt bypasses a write that the process does not read. */
function enqueueWrite(context: ExecContext, session: ExecSession, chars: string): Promise<string | null> {
  const { writes } = context;
  if (chars === INTERRUPT && (!session.command.tty || writes.isBusy(session)))
    return write(context, session, chars, "signal");
  return writes.run(session, () => write(context, session, chars, session.command.tty ? "byte" : "signal"));
}

/** Writes the characters. Returns an error message for the model, or null. */
async function write(
  context: ExecContext,
  session: ExecSession,
  chars: string,
  interruptAs: "byte" | "signal",
): Promise<string | null> {
  const tty = await readTtyState(context, session);
  if (session.end) return null;
  const isSecret = tty?.canonical === true && !tty.echo;
  session.onInteraction(isSecret ? null : chars);
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
    return `write_stdin failed: ${errorMessage(error)}`;
  }
}

const STDIN_CLOSED =
  "write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true to keep stdin open";
