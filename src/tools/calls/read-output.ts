import { incompleteHead, incompleteTail } from "../../base/utf8.ts";
import { DEFAULT_OUTPUT_TOKENS, fitToBudget } from "../output/token-budget.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { Tool } from "../tool.ts";
import { definitions, readOutputSchema } from "./tool-definitions.ts";
import { checkedTool } from "./validated-tool.ts";
import { unknownSession } from "./write-stdin.ts";

/** A token is four bytes in every budget here. */
const BYTES_PER_TOKEN = 4;

/** Reads a range of what a session has written, also after it has ended. */
export function readOutputTool(context: ExecContext): Tool {
  return checkedTool(definitions.readOutput, readOutputSchema, async (args) => {
    const { session_id: sessionId, offset: wanted = 0 } = args;
    const archive = context.shelf.get(sessionId);
    if (!archive) return unknownSession("read_output", sessionId);
    const tokens = Math.min(args.max_output_tokens ?? DEFAULT_OUTPUT_TOKENS, context.maxOutputTokens);
    const original = archive.totalBytes;
    const from = Math.floor(wanted < 0 ? original + wanted : wanted);
    const range = await archive.read(from, tokens * BYTES_PER_TOKEN);
    // Cut between characters, and count from there: the next range begins where this one really ends.
    const bytes = trimmed(range.bytes, range.offset + range.bytes.length < original);
    const offset = range.offset + bytes.skipped;
    const next = offset + bytes.kept.length;
    const omitted = archive.omittedBytes;
    const { text } = fitToBudget(
      { head: bytes.kept, tail: new Uint8Array(0), totalBytes: bytes.kept.length },
      tokens,
    );
    const lines = [
      `Bytes ${offset} to ${next} of ${original}`,
      ...(omitted > 0 ? [`${omitted} bytes in the middle were not kept`] : []),
      "Output:",
    ];
    return {
      ok: true,
      text: `${lines.join("\n")}\n${text}`,
      structured: {
        offset,
        next_offset: next,
        original,
        retained: original - omitted,
        omitted,
        output: text,
      },
    };
  });
}

function trimmed(bytes: Uint8Array, hasMore: boolean): { kept: Uint8Array; skipped: number } {
  const skipped = incompleteHead(bytes);
  const end = bytes.length - (hasMore ? incompleteTail(bytes) : 0);
  // Something that is no text at all is not worth an empty answer.
  return end > skipped ? { kept: bytes.subarray(skipped, end), skipped } : { kept: bytes, skipped: 0 };
}
