import { longSentences } from "./long-sentences.ts";
import type { Pragmas } from "./pragmas.ts";
import type { PhraseRule, Rule } from "./rules.ts";
import { lineAt, type TextBlock } from "./text-block.ts";

export interface Violation {
  rule: string;
  /** Offset in the text of the block. */
  at: number;
}

interface Range {
  from: number;
  to: number;
}

/** Returns the violations in a block. A phrase that several rules match counts for the first one. */
export function findViolations(
  file: string,
  block: TextBlock,
  masked: string,
  rules: readonly Rule[],
  { isSuppressed }: Pragmas,
): Violation[] {
  const reported: Range[] = [];
  return rules
    .filter((rule) => applies(rule, file, block))
    .flatMap((rule) => {
      const ranges = findRanges(rule, block, masked)
        .filter(({ from }) => !isSuppressed(rule.id, lineAt(block, from)))
        .filter((range) => !overlapsAny(range, reported));
      reported.push(...ranges);
      return ranges.map(({ from }) => ({ rule: rule.id, at: from }));
    });
}

function applies({ kinds, paths, allowsHeadings }: Rule, file: string, { kind, isHeading }: TextBlock): boolean {
  if (kinds !== undefined && !kinds.includes(kind)) return false;
  if (paths !== undefined && !paths.test(file)) return false;
  return !(allowsHeadings && isHeading);
}

/** Violations of a length have an empty range. */
function findRanges(rule: Rule, { lines }: TextBlock, masked: string): Range[] {
  if ("pattern" in rule) return phrases(rule, masked);
  const places =
    "maxSentenceWords" in rule
      ? longSentences(masked, rule.maxSentenceWords)
      : lines.filter(({ columns = 0 }) => columns > rule.maxColumns).map(({ at }) => at);
  return places.map((at) => ({ from: at, to: at }));
}

function phrases({ pattern, except }: PhraseRule, masked: string): Range[] {
  const allowed = except === undefined ? [] : rangesOf(except, masked);
  return rangesOf(pattern, masked).filter((range) => !overlapsAny(range, allowed));
}

function rangesOf(pattern: RegExp, text: string): Range[] {
  return [...text.matchAll(pattern)].map(({ 0: { length }, index }) => ({ from: index, to: index + length }));
}

/** An empty range overlaps nothing. */
function overlapsAny({ from, to }: Range, ranges: readonly Range[]): boolean {
  return from < to && ranges.some((range) => from < range.to && to > range.from);
}
