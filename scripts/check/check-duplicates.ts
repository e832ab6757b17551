import { globSync, readFileSync } from "node:fs";

/** Lines of code that make a duplicate. */
const MIN_LINES = 6;
/** Pairs of files in src with a duplicate; the number may only fall. */
const MAX_PAIRS = 6;

/** Reports an increase of the pairs of source files that share six consecutive lines. */
export function checkDuplicates(): string | null {
  const texts = new Map(globSync("src/**/*.{ts,tsx}").map((path) => [path, readFileSync(path, "utf8")]));
  const pairs = duplicatePairs(texts);
  if (pairs.length <= MAX_PAIRS) return null;
  return `${pairs.length} pairs of files share ${MIN_LINES} lines of code, at most ${MAX_PAIRS} are allowed:\n${pairs.join("\n")}`;
}

/** Returns one line per pair of places with equal code, with the first duplicate of two files. */
export function duplicatePairs(texts: ReadonlyMap<string, string>): string[] {
  const firstPlace = new Map<string, { path: string; line: number }>();
  const pairs = new Map<string, string>();
  for (const [path, text] of texts) {
    const code = codeLines(text);
    for (let at = 0; at + MIN_LINES <= code.length; at++) {
      const run = code.slice(at, at + MIN_LINES);
      const key = run.map(({ source }) => source).join("\n");
      const line = run[0]?.line ?? 0;
      const earlier = firstPlace.get(key);
      if (!earlier) firstPlace.set(key, { path, line });
      else if (!pairs.has(`${earlier.path} ${path}`))
        pairs.set(`${earlier.path} ${path}`, `${earlier.path}:${earlier.line} ~ ${path}:${line}`);
    }
  }
  return [...pairs.values()];
}

/** Returns the lines that are neither comments, one-line imports nor only brackets. */
function codeLines(text: string): { source: string; line: number }[] {
  return text
    .split("\n")
    .map((source, index) => ({ source: source.trim(), line: index + 1 }))
    .filter(({ source }) => /\w/.test(source) && !/^(?:\/[/*]|\*|import\b)/.test(source));
}
