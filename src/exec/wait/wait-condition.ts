import type { Clock } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import { defined } from "../../base/omit-undefined.ts";
import { invalidParams } from "../../protocol/errors.ts";
import type { OutputStream, WaitParams, WaitResult } from "../exec-process.ts";
import { failureError } from "../failure.ts";
import type { EventLog } from "../log/event-log.ts";
import type { OutputMatcher } from "./output-matcher.ts";

/** The polling interval of a wait for a port. */
const PORT_POLL_MS = 50;

export interface WaitContext {
  log: EventLog;
  clock: Clock;
  isPortListening: (port: number) => Promise<boolean>;
}

/**
 * Waits for something about a process, from its log alone: works the same for a local process and for a remote one
 * whose log is filled from the wire. What was told after `afterSeq` counts, also when it was told before the call.
 * A condition that can no longer come true ends with `closed`.
 */
export async function waitOn(context: WaitContext, params: WaitParams = {}): Promise<WaitResult> {
  const { log, clock } = context;
  const check = await checkFor(context, params);
  const deadline =
    params.timeoutMs === undefined ? Number.POSITIVE_INFINITY : clock.monotonic() + params.timeoutMs;
  for (;;) {
    params.signal?.throwIfAborted();
    const seen = log.nextSeq;
    const met = await check();
    if (met.type === "met") return result(log, met.reason, met.match);
    if (log.failure !== null) throw failureError(log.failure);
    const changed = log.nextSeq !== seen;
    if (log.isClosed && !changed) return result(log, "closed");
    const remaining = deadline - clock.monotonic();
    if (remaining <= 0) return result(log, "timeout");
    if (changed) continue;
    const timeoutMs = Math.min(remaining, met.type === "later" ? met.inMs : remaining);
    await log.nextChange({
      timeoutMs: Number.isFinite(timeoutMs) ? timeoutMs : undefined,
      signal: params.signal,
    });
  }
}

/** `unmet`: only an event can change it. `later`: look again after that long, even without an event. */
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
      return outputCheck(log, await compile(until.pattern), afterSeq, until.stream);
  }
}

function portCheck({ log, clock, isPortListening }: WaitContext, port: number): () => Promise<Check> {
  let lookAgainAt = 0;
  return async () => {
    const now = clock.monotonic();
    // A process that prints a lot does not make us look more often; its end does, once more.
    if (now < lookAgainAt && !log.isClosed) return { type: "later", inMs: lookAgainAt - now };
    lookAgainAt = now + PORT_POLL_MS;
    if (await isPortListening(port)) return { type: "met", reason: "listening" };
    return { type: "later", inMs: PORT_POLL_MS };
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

/** The engine is only loaded by those who wait for a pattern. */
async function compile(pattern: string): Promise<OutputMatcher> {
  const { OutputMatcher } = await import("./output-matcher.ts");
  try {
    return new OutputMatcher(pattern);
  } catch (error) {
    const why = messageOf(error);
    throw invalidParams(`invalid output pattern \`${pattern}\`: ${why}`, { cause: error });
  }
}

function result(log: EventLog, reason: WaitResult["reason"], match?: string): WaitResult {
  return defined<WaitResult>({
    reason,
    exitCode: log.exit?.exitCode ?? null,
    signal: log.exit?.signal ?? null,
    exitReason: log.exit?.reason,
    limit: log.exit?.limit,
    match,
    seq: log.nextSeq - 1,
  });
}
