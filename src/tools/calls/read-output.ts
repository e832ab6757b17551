import { incompleteHeadBytes, incompleteTailBytes } from "../../base/text/utf8.ts";
import { BYTES_PER_TOKEN, DEFAULT_OUTPUT_TOKENS, truncateToBudget } from "../output/token-budget.ts";
import type { ExecContext } from "../sessions/exec-context.ts";
import type { Tool } from "../tool.ts";
import { toolDefinitions } from "./tool-definitions.ts";
import { unknownSession, validatedTool } from "./validated-tool.ts";

/** Reads a range of the output of an exec session, also after its end. */
export function readOutputTool(context: ExecContext): Tool {
  return validatedTool(toolDefinitions.readOutput, async (args) => {
    const { session_id: sessionId, offset: requestedOffset = 0 } = args;
    const archive = context.archives.get(sessionId);
    if (!archive) return unknownSession("read_output", sessionId);
    const tokens = Math.min(args.max_output_tokens ?? DEFAULT_OUTPUT_TOKENS, context.maxOutputTokens);
    const original = archive.totalBytes;
    const from = Math.floor(requestedOffset < 0 ? original + requestedOffset : requestedOffset);
    const range = await archive.read(from, tokens * BYTES_PER_TOKEN);
    // Cut at character boundaries, so that the next range starts where this one ends.
    const bytes = trimToCharacters(range.bytes, range.offset + range.bytes.length < original);
    const offset = range.offset + bytes.skipped;
    const next = offset + bytes.whole.length;
    const omitted = archive.omittedBytes;
    const { text } = truncateToBudget(
      { head: bytes.whole, tail: new Uint8Array(0), totalBytes: bytes.whole.length },
      tokens,
    );
    const lines = [
      `Bytes ${offset} to ${next} of ${original}`,
      ...(omitted > 0 ? [`${omitted} bytes in the middle were not retained`] : []),
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

function trimToCharacters(bytes: Uint8Array, hasMore: boolean): { whole: Uint8Array; skipped: number } {
  const skipped = incompleteHeadBytes(bytes);
  const end = bytes.length - (hasMore ? incompleteTailBytes(bytes) : 0);
  // Returns binary data unchanged instead of an empty result.
  return end > skipped ? { whole: bytes.subarray(skipped, end), skipped } : { whole: bytes, skipped: 0 };
}
