import { globSync, readFileSync } from "node:fs";

/** Lines of code that make a duplicate. */
const MIN_LINES = 6;

/** Reports the pairs of source files that share six consecutive lines of code. */
export function checkDuplicates(): string | null {
  const texts = new Map(globSync("src/**/*.{ts,tsx}").map((path) => [path, readFileSync(path, "utf8")]));
  const pairs = duplicatePairs(texts);
  return pairs.length === 0 ? null : `equal runs of ${MIN_LINES} lines; write the code once:\n${pairs.join("\n")}`;
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

/** Returns the lines that are neither imports, comments nor only brackets. */
function codeLines(text: string): { source: string; line: number }[] {
  const lines = text.replace(/^import\b[^;]*;/gm, (imported) => imported.replace(/[^\n]/g, "")).split("\n");
  return lines
    .map((source, index) => ({ source: source.trim(), line: index + 1 }))
    .filter(({ source }) => /\w/.test(source) && !/^(?:\/[/*]|\*)/.test(source));
}
