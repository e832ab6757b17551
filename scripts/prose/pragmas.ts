import type { LineIndex } from "./line-index.ts";

const PRAGMA = /prose-ok(-file)?:[ \t]*([a-z-]+(?:[ \t]*,[ \t]*[a-z-]+)*)/g;

/** The rules that a file suppresses. */
export interface Pragmas {
  /** True if the file suppresses every rule. */
  isFileExempt: boolean;
  isSuppressed(rule: string, line: number): boolean;
}

/**
 * Reads the pragmas of a file. `prose-ok: RULE -- reason` covers its own line and the next one, `prose-ok-file: RULE`
 * the whole file. `RULE` is a list of rules separated by commas, or `all`.
 */
export function readPragmas(text: string, index: LineIndex): Pragmas {
  const inFile = new Set<string>();
  const onLine = new Set<string>();
  for (const { 1: wholeFile, 2: list = "", index: at } of text.matchAll(PRAGMA)) {
    const { line } = index.locate(at);
    for (const rule of list.split(/\s*,\s*/)) {
      if (wholeFile !== undefined) inFile.add(rule);
      else onLine.add(`${line}:${rule}`).add(`${line + 1}:${rule}`);
    }
  }
  const isFileExempt = inFile.has("all");
  return {
    isFileExempt,
    isSuppressed: (rule, line) =>
      isFileExempt || inFile.has(rule) || onLine.has(`${line}:${rule}`) || onLine.has(`${line}:all`),
  };
}
