import type { TextBlock } from "./text-block.ts";

const CODE_SPAN = /`[^`]*`/g;
const URL_ADDRESS = /\b[a-z][a-z+.-]*:\/\/\S+/gi;
const INTERPOLATION = /\$\{[^}]*\}/g;
const LINK_TARGET = /\]\([^)]*\)/g;
const HTML_TAG = /<[a-z/!][^>]*>/gi;
const EXAMPLE = /(^|\s)@example[\s\S]*$/;

const asSpaces = (found: string) => " ".repeat(found.length);
const asWord = (found: string) => "x".padEnd(found.length);

/** Returns the text of a block with code and addresses replaced, at unchanged offsets. */
export function maskCode({ text, kind }: TextBlock): string {
  const masked = [CODE_SPAN, URL_ADDRESS, INTERPOLATION].reduce((rest, pattern) => rest.replace(pattern, asWord), text);
  const prose = kind === "doc" ? masked.replace(LINK_TARGET, asSpaces).replace(HTML_TAG, asSpaces) : masked;
  return prose.replace(EXAMPLE, asSpaces);
}

/** Counts the words that have a letter. */
export function countWords(text: string): number {
  return text.split(/\s+/).filter((word) => /[a-z]/i.test(word)).length;
}
