import { incompleteHead, incompleteTail } from "../../base/utf8.ts";
import { concatBytes } from "../../exec/log/head-tail-buffer.ts";

/** A token is taken as this many bytes, as Codex does: close enough for a budget, and free of a tokenizer. */
const BYTES_PER_TOKEN = 4;

/** What a model gets when it names no budget of its own. */
export const DEFAULT_OUTPUT_TOKENS = 10_000;

/** What a model gets at most, whatever it asks for: more would push out what it has to remember. */
export const MAX_OUTPUT_TOKENS = 10_000;

export function tokensOf(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}

/** Output as it was collected: everything, or its two ends and what fell out between them. */
export interface CollectedOutput {
  head: Uint8Array;
  tail: Uint8Array;
  /** Everything the process wrote, also what was not kept. */
  totalBytes: number;
}

export interface ShownOutput {
  text: string;
  /** In bytes. `omitted` is 0 when the model sees everything. */
  original: number;
  retained: number;
  omitted: number;
  /** A line on how much there was in all, where some is left out. */
  extent: string | null;
}

/**
 * The output as a model is shown it, in the form models know from Codex: as much as the budget allows, half of it from the
 * beginning and half from the end, with the tokens between them counted. Bytes that were not even kept are counted in a
 * line in their place.
 */
export function fitToBudget(output: CollectedOutput, maxTokens: number): ShownOutput {
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
  // Where the middle was not kept a character may have been cut in two.
  const begin = firstBytes(head, head.length);
  const end = lastBytes(tail, tail.length);
  const extent = `... ${original - begin.length - end.length} bytes omitted ...`;
  const notice = new TextEncoder().encode(`\n${extent}\n`);
  const { text, retained } = cutMiddle(concatBytes([begin, notice, end]), budget);
  // It stands in the middle, so it is what goes first.
  const shown = Math.min(retained, begin.length + end.length);
  return { text, original, retained: shown, omitted: original - shown, extent };
}

function cutMiddle(bytes: Uint8Array, budget: number): { text: string; retained: number } {
  if (bytes.length <= budget) return { text: decode(bytes), retained: bytes.length };
  const head = firstBytes(bytes, Math.floor(budget / 2));
  const tail = lastBytes(bytes, budget - Math.floor(budget / 2));
  const marker = `…${tokensOf(bytes.length - budget)} tokens truncated…`;
  return { text: `${decode(head)}${marker}${decode(tail)}`, retained: head.length + tail.length };
}

const LINE_FEED = 0x0a;

/** A last line without an end counts too. */
function countLines(bytes: Uint8Array): number {
  let lines = bytes.length > 0 && bytes.at(-1) !== LINE_FEED ? 1 : 0;
  for (const byte of bytes) if (byte === LINE_FEED) lines++;
  return lines;
}

function firstBytes(bytes: Uint8Array, count: number): Uint8Array {
  const first = bytes.subarray(0, count);
  return first.subarray(0, first.length - incompleteTail(first));
}

function lastBytes(bytes: Uint8Array, count: number): Uint8Array {
  const last = bytes.subarray(Math.max(0, bytes.length - count));
  return last.subarray(incompleteHead(last));
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}
