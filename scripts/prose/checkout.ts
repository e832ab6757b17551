import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { hasErrorCode } from "../../src/base/error-code.ts";
import { checkText, type Finding } from "./check-text.ts";
import { languageOf } from "./file-scope.ts";
import { RULES, type Rule } from "./rules.ts";

/** Narrows a scan. */
export interface ScanOptions {
  /** Only lines added since the merge base with this commit. */
  changed?: string | undefined;
  /** Only files whose path matches. */
  path?: RegExp | undefined;
  rules?: readonly Rule[] | undefined;
}

export interface Scan {
  findings: Finding[];
  files: number;
  words: number;
}

/** Added lines per file; null stands for all lines of an untracked file. */
type AddedLines = Map<string, Set<number> | null>;

/** Checks the tracked and the untracked files of a checkout, as they are in the working tree. */
export function scanCheckout(root: string, { changed, path, rules = RULES }: ScanOptions = {}): Scan {
  const added = changed === undefined ? null : addedLines(root, changed);
  const scan: Scan = { findings: [], files: 0, words: 0 };
  for (const file of listFiles(root, "--cached", "--others")) {
    if (languageOf(file) === null || path?.test(file) === false || added?.has(file) === false) continue;
    const text = readIfPresent(join(root, file));
    if (text === null) continue;
    const { findings, words } = checkText(file, text, rules);
    const lines = added?.get(file) ?? null;
    scan.findings.push(...(lines === null ? findings : findings.filter(({ line }) => lines.has(line))));
    scan.files++;
    scan.words += words;
  }
  return scan;
}

function listFiles(root: string, ...which: string[]): string[] {
  const files = git(root, "ls-files", "-z", "--exclude-standard", ...which).split("\0");
  return [...new Set(files)].filter((file) => file !== "").sort();
}

/** Returns null for a tracked file that is deleted in the working tree. */
function readIfPresent(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (hasErrorCode(error, "ENOENT")) return null;
    throw error;
  }
}

function addedLines(root: string, base: string): AddedLines {
  const from = git(root, "merge-base", base, "HEAD").trim();
  const diff = git(root, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-prefix", from, "--");
  const added = parseAddedLines(diff);
  for (const file of listFiles(root, "--others")) added.set(file, null);
  return added;
}

/** Parses a diff without context. A hunk header says how many lines follow, so that their content does not matter. */
function parseAddedLines(diff: string): AddedLines {
  const added: AddedLines = new Map();
  let lines = new Set<number>();
  let remaining = 0;
  for (const text of diff.split("\n")) {
    if (remaining > 0) {
      if (!text.startsWith("\\")) remaining--;
      continue;
    }
    if (text.startsWith("+++ ")) {
      lines = new Set();
      added.set(text.slice("+++ ".length).replace(/\t$/, ""), lines);
    }
    const hunk = /^@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(text);
    if (hunk === null) continue;
    const [removedCount, first, addedCount] = [Number(hunk[1] ?? 1), Number(hunk[2]), Number(hunk[3] ?? 1)];
    for (let line = first; line < first + addedCount; line++) lines.add(line);
    remaining = removedCount + addedCount;
  }
  return added;
}

function git(root: string, ...args: string[]): string {
  return execFileSync("git", ["-C", root, "-c", "core.quotePath=false", ...args], {
    encoding: "utf8",
    maxBuffer: 256 * 1024 * 1024,
  });
}
