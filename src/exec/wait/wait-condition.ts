import type { Clock } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import { omitUndefined } from "../../base/omit-undefined.ts";
import { invalidParams } from "../../protocol/errors.ts";
import type { OutputStream, WaitParams, WaitResult } from "../exec-process.ts";
import type { EventLog } from "../log/event-log.ts";
import type { OutputMatcher } from "./output-matcher.ts";

const PORT_POLL_INTERVAL_MS = 50;

export interface WaitContext {
  log: EventLog;
  clock: Clock;
  isPortListening: (port: number) => Promise<boolean>;
}

/**
 * Waits for a condition, using only the event log, so that local and remote processes behave the same. Events after
 * `afterSeq` count, including those before the call. A condition that can no longer become true returns `closed`.
 */
export async function waitForCondition(context: WaitContext, params: WaitParams = {}): Promise<WaitResult> {
  const { log, clock } = context;
  const check = await checkFor(context, params);
  const deadline = params.timeoutMs === undefined ? null : clock.monotonic() + params.timeoutMs;
  for (;;) {
    params.signal?.throwIfAborted();
    const checkedSeq = log.nextSeq;
    const outcome = await check();
    if (outcome.type === "met") return toResult(log, outcome.reason, outcome.match);
    if (log.failure !== null) throw log.failure;
    const hasChanged = log.nextSeq !== checkedSeq;
    if (log.isClosed && !hasChanged) return toResult(log, "closed");
    const remaining = deadline === null ? undefined : deadline - clock.monotonic();
    if (remaining !== undefined && remaining <= 0) return toResult(log, "timeout");
    if (hasChanged) continue;
    const timeoutMs = outcome.type === "later" ? Math.min(outcome.inMs, remaining ?? outcome.inMs) : remaining;
    await log.nextChange({ timeoutMs, signal: params.signal });
  }
}

/** `unmet`: only an event can change the result. `later`: check again after `inMs`, even without an event. */
type Check =
  | { type: "met"; reason: WaitResult["reason"]; match?: string }
  | { type: "unmet" }
  | { type: "later"; inMs: number };

const UNMET: Check = { type: "unmet" };

async function checkFor(context: WaitContext, params: WaitParams): Promise<() => Check | Promise<Check>> {
  const { log, clock } = context;
  const until = params.until ?? { type: "exit" };
  const afterSeq = params.afterSeq ?? 0;
  switch (until.type) {
    case "exit":
      return () => (log.exit ? { type: "met", reason: "exited" } : UNMET);
    case "bytes": {
      const from = log.offsetAt(afterSeq);
      return () => (log.totalBytes - from >= until.count ? { type: "met", reason: "reached" } : UNMET);
    }
    case "idle": {
      const calledAt = clock.monotonic();
      return () => {
        const quietFor = clock.monotonic() - Math.max(calledAt, log.lastEventAtMs);
        return quietFor >= until.quietMs
          ? { type: "met", reason: "idle" }
          : { type: "later", inMs: until.quietMs - quietFor };
      };
    }
    case "port":
      return portCheck(context, until.port);
    case "output":
      return outputCheck(log, await compilePattern(until.pattern), afterSeq, until.stream);
  }
}

function portCheck({ log, clock, isPortListening }: WaitContext, port: number): () => Promise<Check> {
  let nextPollAt = 0;
  return async () => {
    const now = clock.monotonic();
    // Output does not increase the polling rate; the close of the process triggers one more poll.
    if (now < nextPollAt && !log.isClosed) return { type: "later", inMs: nextPollAt - now };
    nextPollAt = now + PORT_POLL_INTERVAL_MS;
    if (await isPortListening(port)) return { type: "met", reason: "listening" };
    return { type: "later", inMs: PORT_POLL_INTERVAL_MS };
  };
}

function outputCheck(
  log: EventLog,
  matcher: OutputMatcher,
  afterSeq: number,
  stream: OutputStream | undefined,
): () => Promise<Check> {
  let seq = afterSeq;
  return async () => {
    for (;;) {
      const event = log.eventAfter(seq);
      if (!event || event.type === "failed") return UNMET;
      if (event.type === "gap") {
        seq = event.toSeq;
        matcher.skip();
        continue;
      }
      seq = event.seq;
      if (event.type !== "output" || (stream !== undefined && event.stream !== stream)) continue;
      const match = await matcher.push(event.stream, event.chunk);
      if (match !== null) return { type: "met", reason: "matched", match };
    }
  };
}

/** Loads the pattern engine only when a wait has a pattern. */
async function compilePattern(pattern: string): Promise<OutputMatcher> {
  const { OutputMatcher } = await import("./output-matcher.ts");
  try {
    return new OutputMatcher(pattern);
  } catch (error) {
    const why = errorMessage(error);
    throw invalidParams(`invalid output pattern \`${pattern}\`: ${why}`, { cause: error });
  }
}

function toResult(log: EventLog, reason: WaitResult["reason"], match?: string): WaitResult {
  return omitUndefined<WaitResult>({
    reason,
    exitCode: log.exit?.exitCode ?? null,
    signal: log.exit?.signal ?? null,
    exitReason: log.exit?.reason,
    limit: log.exit?.limit,
    match,
    seq: log.nextSeq - 1,
  });
}
