import { onAbort } from "../../async/abort.ts";
import { withDeadline } from "../../async/deadline.ts";
import type { TtyState } from "../../exec/exec-process.ts";
import { type CallResult, renderStructured, renderText } from "../output/render.ts";
import { DEFAULT_OUTPUT_TOKENS, type RetainedText, truncateToBudget } from "../output/token-budget.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { ToolCallContext, ToolOutput } from "../tool.ts";

/** Waits for the end of the session, of the yield window or of the call. Never ends the process. */
export async function waitForYield(
  context: ExecContext,
  session: ExecSession,
  windowMs: number,
  call: ToolCallContext,
): Promise<void> {
  await withProgress(context, session, call, async () => {
    const { promise: windowEnd, resolve } = Promise.withResolvers<void>();
    const timer = context.clock.after(windowMs, resolve);
    const stop = call.signal && onAbort(call.signal, resolve);
    try {
      await Promise.race([session.ended, windowEnd]);
    } finally {
      timer.cancel();
      stop?.();
    }
  });
}

/** Delay of the first progress message. It names the session, in case the connection is lost later. */
const FIRST_PROGRESS_MS = 1000;
/** Interval of progress messages. After a longer silence, clients may time out. */
const PROGRESS_INTERVAL_MS = 5000;

/** Marks the session as watched and reports progress while `wait` runs. */
export async function withProgress<T>(
  context: ExecContext,
  session: ExecSession,
  call: ToolCallContext,
  wait: () => Promise<T>,
): Promise<T> {
  const { clock, sessions } = context;
  let timer = clock.after(FIRST_PROGRESS_MS, report);
  function report() {
    const seconds = Math.round((clock.monotonic() - session.startedAtMs) / 1000);
    call.onProgress?.(
      `session ${session.sessionId}: running for ${seconds} s, ${session.archive.totalBytes} bytes of output`,
    );
    timer = clock.after(PROGRESS_INTERVAL_MS, report);
  }
  sessions.touch(session);
  try {
    const watch = () => session.withWatcher(wait);
    return await (session.network ? session.network.withCall(call, watch) : watch());
  } finally {
    timer.cancel();
    sessions.touch(session);
  }
}

export interface AnswerOptions {
  /** Start of the call, monotonic. */
  sinceMs: number;
  maxOutputTokens: number | undefined;
  waited?: string;
  /**
   * Aborted if the call was canceled. Output and end are then left for the next call, because the client may never read
   * this result.
   */
  signal: AbortSignal | undefined;
}

const NO_OUTPUT: RetainedText = { head: new Uint8Array(0), tail: new Uint8Array(0), totalBytes: 0 };

/** Builds the result of a call: output since the last call, and state. Removes a session whose end it reports. */
export async function buildAnswer(
  context: ExecContext,
  session: ExecSession,
  options: AnswerOptions,
): Promise<ToolOutput> {
  const wallTimeMs = context.clock.monotonic() - options.sinceMs;
  const awaitingInput = session.end ? undefined : await readInputState(context, session);
  if (awaitingInput?.secret) session.promptState("secret");
  const isDelivered = !options.signal?.aborted;
  const budget = Math.min(options.maxOutputTokens ?? DEFAULT_OUTPUT_TOKENS, context.maxOutputTokens);
  const result: CallResult = {
    chunkId: context.newChunkId(),
    wallTimeMs,
    state: toCallState(session),
    output: truncateToBudget(isDelivered ? session.takeOutput() : NO_OUTPUT, budget),
    archivedAs: session.sessionId,
    awaitingInput,
    attach: awaitingInput?.secret ? (session.attachHint ?? undefined) : undefined,
    user: isDelivered ? session.takeUserActivity() : undefined,
    waited: options.waited,
    blocked: isDelivered ? session.network?.takeBlocked() : undefined,
    awaitingApproval: session.network?.openTargets,
  };
  if (session.end && isDelivered) context.sessions.remove(session);
  return {
    ok: result.state.type !== "failed",
    text: renderText(result),
    structured: renderStructured(result),
  };
}

export function errorAnswer(text: string): ToolOutput {
  return { ok: false, text };
}

export function missingTerminal({ sessionId }: ExecSession): ToolOutput {
  return errorAnswer(`session ${sessionId} has no terminal; rerun exec_command with tty=true to get one`);
}

function toCallState({ end, sessionId }: ExecSession): CallResult["state"] {
  switch (end?.type) {
    case undefined:
      return { type: "running", sessionId };
    case "exited":
      return { ...end, type: "exited" };
    case "failed":
      return { type: "failed", sessionId, message: end.message };
    case "evicted":
      return { type: "failed", sessionId, message: "evicted, because the session limit was reached" };
    case "closed":
      return { type: "failed", sessionId, message: "ended, because unified exec was closed" };
  }
}

async function readInputState(context: ExecContext, session: ExecSession): Promise<{ secret: boolean } | undefined> {
  const tty = await readTtyState(context, session);
  // A program in raw mode waits for a key. In line mode it may just be busy, unless echo is off.
  if (!tty || (tty.canonical && tty.echo)) return undefined;
  return { secret: tty.canonical };
}

/** Maximum wait for the terminal state. */
const TTY_STATE_DEADLINE_MS = 1000;

/** Returns the terminal state of a session, or null without a terminal or after the deadline. */
export async function readTtyState(context: ExecContext, session: ExecSession): Promise<TtyState | null> {
  if (!session.command.tty || session.end) return null;
  const snapshot = session.process.snapshot();
  return withDeadline(snapshot, TTY_STATE_DEADLINE_MS, "the terminal state", context.clock).then(
    ({ tty }) => tty ?? null,
    () => null,
  );
}
