import { type Clock, systemClock } from "../../async/clock.ts";
import { TimeoutError } from "../../async/deadline.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import { withCallErrors } from "../call-error.ts";
import type { ExecProcess, OutputStream } from "../exec-process.ts";
import { checkArgument, checkOptions } from "../options/option-schema.ts";
import { patternKind, processKind, waitForOptions } from "../options/process-options.ts";

/** Maximum characters of a match that precede the chunk which completes it. */
const WINDOW_CHARS = 64 * 1024;

export interface WaitForOptions {
  /** Default: all streams, each as a separate text. */
  stream?: OutputStream;
  /** Only output after this sequence number. Default 0: earlier output counts too. */
  afterSeq?: number;
  timeoutMs?: number;
  signal?: AbortSignal;
  clock?: Clock;
}

export interface Match {
  text: string;
  /** Capture groups from 1; undefined for a group that did not take part. */
  groups: (string | undefined)[];
  /** Sequence number of the output that completed the match; pass it as `afterSeq` to continue from here. */
  seq: number;
}

/**
 * Waits until the output matches. Rejects with an ExecServerError: code `ENDED` if the process ends without a match,
 * `TIMEOUT` after `timeoutMs`.
 *
 * @example
 * const { groups } = await waitFor(process, /listening on port (\d+)/, { timeoutMs: 5000 });
 */
export function waitFor(process: ExecProcess, pattern: RegExp | string, options: WaitForOptions = {}): Promise<Match> {
  return withCallErrors({ method: "process/output" }, () => firstMatch(process, pattern, options));
}

async function firstMatch(process: ExecProcess, pattern: RegExp | string, options: WaitForOptions): Promise<Match> {
  checkArgument("waitFor", "process", process, processKind);
  checkArgument("waitFor", "pattern", pattern, patternKind);
  checkOptions("waitFor", options, waitForOptions);
  const { stream, afterSeq = 0, timeoutMs, clock = systemClock } = options;
  const what = `\`${String(pattern)}\` in the output of process ${process.processId}`;
  const ending = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, ending.signal]) : ending.signal;
  const timer =
    timeoutMs === undefined ? null : clock.after(timeoutMs, () => ending.abort(new TimeoutError(what, timeoutMs)));
  const texts = new Map<OutputStream, StreamText>();
  const expression = toExpression(pattern);
  try {
    for await (const event of process.events({ afterSeq, signal })) {
      if (event.type === "failed") throw event.error;
      if (event.type === "gap") texts.clear();
      if (event.type !== "output" || (stream !== undefined && event.stream !== stream)) continue;
      const seen = texts.get(event.stream) ?? new StreamText();
      texts.set(event.stream, seen);
      seen.text += seen.decoder.decode(event.chunk, { stream: true });
      const found = expression.exec(seen.text);
      if (found) return { text: found[0], groups: found.slice(1), seq: event.seq };
      seen.text = seen.text.slice(-WINDOW_CHARS);
    }
    throw new ExecServerError(`no match for ${what}: the process has ended`, "ENDED");
  } finally {
    timer?.cancel();
  }
}

class StreamText {
  readonly decoder = new TextDecoder();
  text = "";
}

/** Drops the flags that make an expression stateful. */
function toExpression(pattern: RegExp | string): RegExp {
  if (typeof pattern === "string") return new RegExp(pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, ""));
}
