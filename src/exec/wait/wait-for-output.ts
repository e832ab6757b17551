import type { Clock } from "../../async/clock.ts";
import { systemClock } from "../../async/clock.ts";
import { TimeoutError } from "../../async/deadline.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import { asked } from "../call-error.ts";
import type { ExecProcess, OutputStream } from "../exec-process.ts";
import { failureError } from "../failure.ts";

/** A match may begin this many characters before the text that completes it. */
const WINDOW_CHARS = 64 * 1024;

export interface WaitForOptions {
  /** Default: all of them, each as a text of its own. */
  stream?: OutputStream;
  /** Only output after this seq; default 0, so what was printed before the call counts. */
  afterSeq?: number;
  timeoutMs?: number;
  signal?: AbortSignal;
  clock?: Clock;
}

export interface Match {
  text: string;
  /** The expression's groups, from 1; undefined for one that took no part. */
  groups: (string | undefined)[];
  /** The output that completed the match; give it as `afterSeq` to go on from here. */
  seq: number;
}

/**
 * Waits until the output matches. Rejects with an ExecServerError: `ENDED` when the process ends without a match,
 * `TIMEOUT` after its time.
 *
 * @example
 * const { groups } = await waitFor(process, /listening on port (\d+)/, { timeoutMs: 5000 });
 */
export function waitFor(
  process: ExecProcess,
  pattern: RegExp | string,
  options: WaitForOptions = {},
): Promise<Match> {
  return asked({ method: "process/output" }, () => firstMatch(process, pattern, options));
}

async function firstMatch(
  process: ExecProcess,
  pattern: RegExp | string,
  options: WaitForOptions,
): Promise<Match> {
  const { stream, afterSeq = 0, timeoutMs, clock = systemClock } = options;
  const what = `${String(pattern)} in the output of process ${process.processId}`;
  const ending = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, ending.signal]) : ending.signal;
  const timer =
    timeoutMs === undefined
      ? null
      : clock.after(timeoutMs, () => ending.abort(new TimeoutError(what, timeoutMs)));
  const texts = new Map<OutputStream, StreamText>();
  const expression = toExpression(pattern);
  try {
    for await (const event of process.events({ afterSeq, signal })) {
      if (event.type === "failed") throw failureError(event.message);
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

/** Without the flags that make an expression remember where it was. */
function toExpression(pattern: RegExp | string): RegExp {
  if (typeof pattern === "string") return new RegExp(pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, ""));
}
