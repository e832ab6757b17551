import { concatBytes } from "../../base/bytes.ts";
import { decodeUtf8, incompleteHeadBytes, incompleteTailBytes } from "../../base/text/utf8.ts";

/** Estimated bytes per token, as in Codex. Accurate enough for a budget, and needs no tokenizer. */
export const BYTES_PER_TOKEN = 4;

/** Budget if a model requests none. */
export const DEFAULT_OUTPUT_TOKENS = 10_000;

/** Maximum budget. More output would displace earlier context of the model. */
export const MAX_OUTPUT_TOKENS = 10_000;

export function tokensOf(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}

/** Collected output: complete, or only head and tail. */
export interface RetainedText {
  head: Uint8Array;
  tail: Uint8Array;
  /** All bytes of the process, including bytes that were not retained. */
  totalBytes: number;
}

export interface ShownOutput {
  text: string;
  /** In bytes. `omitted` is 0 if `text` is complete. */
  original: number;
  retained: number;
  omitted: number;
  /** A line with the total size if output was omitted, otherwise null. */
  extent: string | null;
}

/**
 * Truncates output to a token budget in the format of Codex: half from the head, half from the tail, with the number of
 * omitted tokens between them. A separate line counts bytes that were not retained.
 */
export function truncateToBudget(output: RetainedText, maxTokens: number): ShownOutput {
  const { totalBytes: original } = output;
  const budget = Math.max(0, Math.floor(maxTokens)) * BYTES_PER_TOKEN;
  const { head, tail } = output;
  const isWhole = original === head.length + tail.length;
  if (isWhole) {
    const whole = concatBytes([head, tail]);
    const { text, retained } = cutMiddle(whole, budget);
    const omitted = original - retained;
    const extent = omitted === 0 ? null : `Total output lines: ${countLines(whole)}`;
    return { text, original, retained, omitted, extent };
  }
  // Without the middle, a character may be split at either side of the gap.
  const begin = firstBytes(head, head.length);
  const end = lastBytes(tail, tail.length);
  const extent = `... ${original - begin.length - end.length} bytes omitted ...`;
  const notice = new TextEncoder().encode(`\n${extent}\n`);
  const { text, retained } = cutMiddle(concatBytes([begin, notice, end]), budget);
  // The notice is in the middle, which is truncated first, so it does not count as shown output.
  const shown = Math.min(retained, begin.length + end.length);
  return { text, original, retained: shown, omitted: original - shown, extent };
}

function cutMiddle(bytes: Uint8Array, budget: number): { text: string; retained: number } {
  if (bytes.length <= budget) return { text: decodeUtf8(bytes), retained: bytes.length };
  const head = firstBytes(bytes, Math.floor(budget / 2));
  const tail = lastBytes(bytes, budget - Math.floor(budget / 2));
  const marker = `…${tokensOf(bytes.length - budget)} tokens truncated…`;
  return { text: `${decodeUtf8(head)}${marker}${decodeUtf8(tail)}`, retained: head.length + tail.length };
}

const LINE_FEED = 0x0a;

/** Counts lines, including a last line without a line feed. */
function countLines(bytes: Uint8Array): number {
  let lines = bytes.length > 0 && bytes.at(-1) !== LINE_FEED ? 1 : 0;
  for (const byte of bytes) if (byte === LINE_FEED) lines++;
  return lines;
}

function firstBytes(bytes: Uint8Array, count: number): Uint8Array {
  const first = bytes.subarray(0, count);
  return first.subarray(0, first.length - incompleteTailBytes(first));
}

function lastBytes(bytes: Uint8Array, count: number): Uint8Array {
  const last = bytes.subarray(Math.max(0, bytes.length - count));
  return last.subarray(incompleteHeadBytes(last));
}
