import type { TtyState } from "../../exec/exec-process.ts";
import type { CallResult } from "../output/render.ts";
import { renderStructured, renderText } from "../output/render.ts";
import type { CollectedOutput } from "../output/token-budget.ts";
import { DEFAULT_OUTPUT_TOKENS, fitToBudget } from "../output/token-budget.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { ExecSession } from "../sessions/exec-session.ts";
import type { ToolCallContext, ToolOutput } from "../tool.ts";

/** Waits until the session has ended, the window is over, or the call is given up. The process goes on in any case. */
export async function waitWindow(
  context: ExecContext,
  session: ExecSession,
  windowMs: number,
  call: ToolCallContext,
): Promise<void> {
  await whileWaiting(context, session, call, async () => {
    const { promise: over, resolve } = Promise.withResolvers<void>();
    const timer = context.clock.after(windowMs, resolve);
    const onAbort = () => resolve();
    call.signal?.addEventListener("abort", onAbort, { once: true });
    if (call.signal?.aborted) resolve();
    try {
      await Promise.race([session.ended, over]);
    } finally {
      timer.cancel();
      call.signal?.removeEventListener("abort", onAbort);
    }
  });
}

/** A short call needs no progress message; the first message names the session, in case the caller is cut off later. */
const FIRST_PROGRESS_MS = 1000;
/** A client that hears nothing for longer may give up on the call. */
const PROGRESS_EVERY_MS = 5000;

/** Marks the session as waited for and tells progress while `wait` runs. */
export async function whileWaiting<T>(
  context: ExecContext,
  session: ExecSession,
  call: ToolCallContext,
  wait: () => Promise<T>,
): Promise<T> {
  const { clock, sessions } = context;
  let timer = clock.after(FIRST_PROGRESS_MS, tell);
  function tell() {
    const seconds = Math.round((clock.now() - session.startedAtMs) / 1000);
    call.onProgress?.(
      `session ${session.sessionId}: running for ${seconds} s, ${session.archive.totalBytes} bytes of output`,
    );
    timer = clock.after(PROGRESS_EVERY_MS, tell);
  }
  sessions.touch(session);
  try {
    return await session.whileWatched(wait);
  } finally {
    timer.cancel();
    sessions.touch(session);
  }
}

export interface AnswerOptions {
  sinceMs: number;
  maxOutputTokens: number | undefined;
  waited?: string;
  /** Aborted when the call was cancelled: its answer may never be read, so output and end are left for the next call. */
  signal: AbortSignal | undefined;
}

const NO_OUTPUT: CollectedOutput = { head: new Uint8Array(0), tail: new Uint8Array(0), totalBytes: 0 };

/** What a call answers: the output since the last one, and how things stand. A session told as over is forgotten. */
export async function answer(
  context: ExecContext,
  session: ExecSession,
  options: AnswerOptions,
): Promise<ToolOutput> {
  const wallTimeMs = context.clock.now() - options.sinceMs;
  const awaitingInput = session.end ? undefined : await awaitedInput(context, session);
  if (awaitingInput?.secret) session.waitsFor("secret");
  const isHeard = !options.signal?.aborted;
  const budget = Math.min(options.maxOutputTokens ?? DEFAULT_OUTPUT_TOKENS, context.maxOutputTokens);
  const result: CallResult = {
    chunkId: context.newChunkId(),
    wallTimeMs,
    state: stateOf(session),
    output: fitToBudget(isHeard ? session.takeOutput() : NO_OUTPUT, budget),
    archivedAs: session.sessionId,
    awaitingInput,
    attach: awaitingInput?.secret ? (session.attachHint ?? undefined) : undefined,
    person: isHeard ? session.takePerson() : undefined,
    waited: options.waited,
  };
  if (session.end && isHeard) context.sessions.remove(session);
  return {
    ok: result.state.type !== "failed",
    text: renderText(result),
    structured: renderStructured(result),
  };
}

export function refusal(text: string): ToolOutput {
  return { ok: false, text };
}

function stateOf({ end, sessionId }: ExecSession): CallResult["state"] {
  switch (end?.type) {
    case undefined:
      return { type: "running", sessionId };
    case "exited":
      return { ...end, type: "exited" };
    case "failed":
      return { type: "failed", sessionId, message: end.message };
    case "evicted":
      return { type: "failed", sessionId, message: "ended to make room for another session" };
    case "closed":
      return { type: "failed", sessionId, message: "ended because unified exec was closed" };
  }
}

async function awaitedInput(
  context: ExecContext,
  session: ExecSession,
): Promise<{ secret: boolean } | undefined> {
  const tty = await ttyState(context, session);
  // A program in raw mode waits for a key. One that reads lines may just be busy, unless it has turned echo off.
  if (!tty || (tty.canonical && tty.echo)) return undefined;
  return { secret: tty.canonical };
}

/** The state of a terminal is worth a short wait only. */
const TTY_STATE_DEADLINE_MS = 1000;

/** How the terminal of a session stands; null without one, or when that cannot be learned quickly. */
export async function ttyState(context: ExecContext, session: ExecSession): Promise<TtyState | null> {
  if (!session.command.tty || session.end) return null;
  const { promise: late, resolve } = Promise.withResolvers<null>();
  const timer = context.clock.after(TTY_STATE_DEADLINE_MS, () => resolve(null));
  const asked = session.process.snapshot().then(
    (snapshot) => snapshot.tty ?? null,
    () => null,
  );
  const state = await Promise.race([asked, late]);
  timer.cancel();
  return state;
}
