import type { StringLiteral } from "./code-tokens.ts";
import { hasHelpTexts, isProductCode, isTestCode } from "./file-scope.ts";
import type { LineIndex } from "./line-index.ts";
import type { Kind, TextBlock } from "./text-block.ts";

/** Calls whose string arguments are messages. */
const MESSAGE_CALL =
  /(?:Error|^invalid(?:Request|Params)|^internalError|^notFound|^cannotEnforce|^refus(?:e|ed|al)|^reject(?:ed)?|^fail(?:ed|ure)?|^warn(?:ing)?|^say|^log)$/;
const TEST_CALL = /^(?:test|it|describe|suite|before|after)$/;

/** Returns the strings of a code file that are prose: test titles, error messages and help texts. */
export function stringBlocks(file: string, literals: readonly StringLiteral[], index: LineIndex): TextBlock[] {
  return literals.flatMap((literal) => {
    const kind = kindOf(file, literal);
    return kind === null ? [] : [stringBlock(kind, literal, index)];
  });
}

/**
 * A title has two words or more, a message three: shorter strings are keys and names. The first string of an array in a
 * test counts as a title, because tables of cases start with one.
 */
function kindOf(file: string, { text, calls, isFirst }: StringLiteral): Kind | null {
  const words = text.trim().split(/\s+/).length;
  if (isTestCode(file)) {
    return words >= 2 && isFirst && TEST_CALL.test(calls.at(-1) ?? "") ? "test" : null;
  }
  if (words < 3 || !isProductCode(file)) return null;
  if (calls.some((call) => MESSAGE_CALL.test(call))) return "error";
  return hasHelpTexts(file) ? "help" : null;
}

function stringBlock(kind: Kind, { text, from }: StringLiteral, index: LineIndex): TextBlock {
  const { line } = index.locate(from);
  const starts = [0, ...[...text.matchAll(/\n/g)].map((lineBreak) => lineBreak.index + 1)];
  return {
    kind,
    text: text.replace(/\\[nrt"'`$\\]/g, "  "),
    lines: starts.map((at, offset) => ({ at, line: line + offset })),
  };
}
