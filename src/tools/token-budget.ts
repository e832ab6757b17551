import { concatBytes } from "../exec/head-tail-buffer.ts";
import { incompleteHead, incompleteTail } from "./utf8-boundary.ts";

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
}

/**
 * The output as a model is shown it: as much as the budget allows, half of it from the beginning and half from the
 * end, with a line in between that counts what is missing.
 */
export function fitToBudget(output: CollectedOutput, maxTokens: number): ShownOutput {
  const { totalBytes: original } = output;
  const budget = Math.max(0, Math.floor(maxTokens)) * BYTES_PER_TOKEN;
  const complete = original === output.head.length + output.tail.length;
  const whole = complete ? concatBytes([output.head, output.tail]) : null;
  if (whole && original <= budget) return { text: decode(whole), original, retained: original, omitted: 0 };
  const head = firstBytes(whole ?? output.head, Math.ceil(budget / 2));
  const tail = lastBytes(whole ?? output.tail, budget - head.length);
  const retained = head.length + tail.length;
  const omitted = original - retained;
  const lineBreak = head.length === 0 || head.at(-1) === LINE_FEED ? "" : "\n";
  const text = `${decode(head)}${lineBreak}... ${omitted} bytes omitted ...\n${decode(tail)}`;
  return { text, original, retained, omitted };
}

const LINE_FEED = 0x0a;

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
