import { countWords } from "./masking.ts";

const SENTENCE_END = /[.!?:](?=["')\]]*(?:\s|$))|$/g;
/** Periods after these do not end a sentence. */
const ABBREVIATION = /(?:\b(?:e\.g|i\.e|etc|vs|cf)|\s\d+)$/i;
/** A colon after fewer words introduces a term, not a sentence. */
const MIN_WORDS_BEFORE_COLON = 6;

/** Returns the offsets of the sentences that have more than `maxWords` words. */
export function longSentences(text: string, maxWords: number): number[] {
  const found: number[] = [];
  let start = 0;
  for (const { 0: end, index } of text.matchAll(SENTENCE_END)) {
    const sentence = text.slice(start, index);
    const words = countWords(sentence);
    if (end === "." && ABBREVIATION.test(sentence)) continue;
    if (end === ":" && words < MIN_WORDS_BEFORE_COLON) continue;
    if (words > maxWords) found.push(index - sentence.trimStart().length);
    start = index + end.length;
  }
  return found;
}
