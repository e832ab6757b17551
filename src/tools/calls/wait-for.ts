import { errorMessage } from "../../base/error-message.ts";
import type { WaitCondition, WaitResult } from "../../exec/exec-process.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { Tool, ToolCallContext } from "../tool.ts";
import { toolDefinitions, type WaitForArguments } from "./tool-definitions.ts";
import type { Parsed } from "./tool-schema.ts";
import { sessionTool } from "./validated-tool.ts";
import { buildAnswer, errorAnswer, waitForYield, withProgress } from "./yield-call.ts";

const DEFAULT_TIMEOUT_MS = 60_000;
const DEFAULT_IDLE_MS = 1000;
/** Wait for the last output after the exit of the process. */
const LAST_OUTPUT_TIMEOUT_MS = 1000;

/** Waits for a condition of an exec session. The host of the process evaluates it, so it also works on remote hosts. */
export function waitForTool(context: ExecContext): Tool {
  return sessionTool(context, toolDefinitions.waitFor, async (session, args, call) => {
    const until = await parseCondition(args);
    if (until.type === "invalid") return errorAnswer(`wait_for: ${until.message}`);
    const sinceMs = context.clock.monotonic();
    const maxOutputTokens = args.max_output_tokens;
    const { timeout_ms: requestedMs = DEFAULT_TIMEOUT_MS } = args;
    const timeoutMs = Math.min(requestedMs, context.yieldLimits.pollMaxMs);
    try {
      const waited = session.end ? "exited" : await waitOn(context, session, until, timeoutMs, call);
      return await buildAnswer(context, session, { sinceMs, maxOutputTokens, waited, signal: call.signal });
    } catch (error) {
      // If the process failed during the wait, returns its output; otherwise the wait itself failed.
      if (session.end) return buildAnswer(context, session, { sinceMs, maxOutputTokens, signal: call.signal });
      return errorAnswer(`wait_for failed: ${errorMessage(error)}`);
    }
  });
}

type InvalidCondition = Extract<Parsed<never>, { type: "invalid" }>;

async function parseCondition(args: WaitForArguments): Promise<WaitCondition | InvalidCondition> {
  switch (args.until) {
    case "exit":
      return { type: "exit" };
    case "pattern":
      if (args.pattern === undefined) return { type: "invalid", message: "missing argument `pattern`" };
      // Multi-line mode, because models write patterns for single lines.
      return (await checkPattern(args.pattern)) ?? { type: "output", pattern: `(?m)${args.pattern}` };
    case "port":
      if (args.port === undefined) return { type: "invalid", message: "missing argument `port`" };
      return { type: "port", port: args.port };
    case "idle":
      return { type: "idle", quietMs: args.idle_ms ?? DEFAULT_IDLE_MS };
  }
}

/** Returns the error of an invalid pattern, or null. Checked before the wait, so that it quotes the original. */
async function checkPattern(pattern: string): Promise<InvalidCondition | null> {
  // Loads the regular expression engine only if needed.
  const { OutputMatcher } = await import("../../exec/wait/output-matcher.ts");
  try {
    new OutputMatcher(pattern);
    return null;
  } catch (error) {
    return { type: "invalid", message: `invalid pattern \`${pattern}\`: ${errorMessage(error)}` };
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
    const result = await withProgress(context, session, call, () =>
      session.process.wait({ until, timeoutMs, afterSeq: session.inputSeq, signal }),
    );
    if (result.reason === "exited" || result.reason === "closed")
      await waitForYield(context, session, LAST_OUTPUT_TIMEOUT_MS, call);
    return describeWait(result);
  } catch (error) {
    if (signal?.aborted) return "the call was cancelled";
    // The session receives the failure too. Waits for it, so that the result contains the failure.
    await waitForYield(context, session, LAST_OUTPUT_TIMEOUT_MS, call);
    throw error;
  }
}

function describeWait(result: WaitResult): string {
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
