import { messageOf } from "../../base/error-message.ts";
import type { WaitCondition, WaitResult } from "../../exec/exec-process.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { Tool, ToolCallContext } from "../tool.ts";
import type { WaitForArguments } from "./tool-definitions.ts";
import { definitions, waitForSchema } from "./tool-definitions.ts";
import { checkedTool } from "./validated-tool.ts";
import { unknownSession } from "./write-stdin.ts";
import { answer, refusal, waitWindow, whileWaiting } from "./yield-call.ts";

const DEFAULT_TIMEOUT_MS = 60_000;
const DEFAULT_IDLE_MS = 1000;
/** When the process is over its last words may still be on their way. */
const LAST_OUTPUT_MS = 1000;

/** Waits for a condition instead of a clock. The host of the process watches, so it works the same far away. */
export function waitForTool(context: ExecContext): Tool {
  return checkedTool(definitions.waitFor, waitForSchema, async (args, call) => {
    const until = await conditionOf(args);
    if (typeof until === "string") return refusal(`wait_for: ${until}`);
    const session = context.sessions.get(args.session_id);
    if (!session) return unknownSession("wait_for", args.session_id);
    const sinceMs = context.clock.now();
    const maxOutputTokens = args.max_output_tokens;
    const { timeout_ms: wanted = DEFAULT_TIMEOUT_MS } = args;
    const timeoutMs = Math.min(wanted, context.yieldLimits.pollMaxMs);
    try {
      const waited = session.end ? "exited" : await waitOn(context, session, until, timeoutMs, call);
      return await answer(context, session, { sinceMs, maxOutputTokens, waited, signal: call.signal });
    } catch (error) {
      // A process that failed under the wait is told with its output; anything else went wrong with the wait.
      if (session.end) return answer(context, session, { sinceMs, maxOutputTokens, signal: call.signal });
      return refusal(`wait_for failed: ${messageOf(error)}`);
    }
  });
}

async function conditionOf(args: WaitForArguments): Promise<WaitCondition | string> {
  switch (args.until) {
    case "exit":
      return { type: "exit" };
    case "pattern":
      if (args.pattern === undefined) return "missing argument `pattern`";
      return (
        (await problemWith(args.pattern)) ?? {
          // Models write patterns for lines of output.
          type: "output",
          pattern: `(?m)${args.pattern}`,
        }
      );
    case "port":
      return args.port === undefined ? "missing argument `port`" : { type: "port", port: args.port };
    case "idle":
      return { type: "idle", quietMs: args.idle_ms ?? DEFAULT_IDLE_MS };
  }
}

/** What is wrong with a pattern, in words about what was written, before anyone waits; null when nothing is. */
async function problemWith(pattern: string): Promise<string | null> {
  // The engine is only loaded by those who wait for a pattern.
  const { OutputMatcher } = await import("../../exec/wait/output-matcher.ts");
  try {
    new OutputMatcher(pattern);
    return null;
  } catch (error) {
    return `invalid pattern \`${pattern}\`: ${messageOf(error)}`;
  }
}

async function waitOn(
  context: ExecContext,
  session: ExecSession,
  until: WaitCondition,
  timeoutMs: number,
  call: ToolCallContext,
): Promise<string> {
  const { signal } = call;
  try {
    const result = await whileWaiting(context, session, call, () =>
      session.process.wait({ until, timeoutMs, afterSeq: session.inputSeq, signal }),
    );
    if (result.reason === "exited" || result.reason === "closed")
      await waitWindow(context, session, LAST_OUTPUT_MS, call);
    return wordsFor(result);
  } catch (error) {
    if (signal?.aborted) return "the call was cancelled";
    // The failure comes to the session as well; let it arrive there first.
    await waitWindow(context, session, LAST_OUTPUT_MS, call);
    throw error;
  }
}

function wordsFor(result: WaitResult): string {
  switch (result.reason) {
    case "matched":
      return `matched ${JSON.stringify(result.match ?? "")}`;
    case "closed":
      return "the process ended before the condition came true";
    case "reached":
    case "exited":
    case "idle":
    case "listening":
    case "timeout":
      return result.reason;
  }
}
