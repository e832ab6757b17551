import { blankTokens, codeTokens } from "./code-tokens.ts";
import { commentBlocks } from "./comment-blocks.ts";
import { isProductCode, languageOf } from "./file-scope.ts";
import { bannedIdentifiers } from "./identifiers.ts";
import { LineIndex } from "./line-index.ts";
import { markdownBlocks } from "./markdown-blocks.ts";
import { countWords, maskCode } from "./masking.ts";
import { type Pragmas, readPragmas } from "./pragmas.ts";
import { findViolations } from "./rule-matches.ts";
import { RULES, type Rule } from "./rules.ts";
import { shellComments } from "./shell-comments.ts";
import { stringBlocks } from "./string-blocks.ts";
import { type Kind, lineAt, type TextBlock } from "./text-block.ts";

export interface Finding {
  file: string;
  line: number;
  /** Id of a rule, or `name` for an identifier. */
  rule: string;
  kind: Kind | "name";
  /** The identifier, or the text around the phrase. */
  text: string;
}

export interface CheckedText {
  /** In the order of lines, identifiers last. */
  findings: Finding[];
  /** Words of prose in the file; 0 if the file suppresses every rule. */
  words: number;
}

interface Extracted {
  blocks: TextBlock[];
  /** Source without comments and strings; null if the identifiers of the file are not checked. */
  code: string | null;
}

/** Checks the prose and the identifiers of one file. `file` is its path in the checkout. */
export function checkText(file: string, text: string, rules: readonly Rule[] = RULES): CheckedText {
  const index = new LineIndex(text);
  const pragmas = readPragmas(text, index);
  if (pragmas.isFileExempt) return { findings: [], words: 0 };
  const { blocks, code } = extract(file, text, index);
  const checked = blocks.map((block) => checkBlock(file, block, rules, pragmas));
  const names = bannedIdentifiers(code ?? "")
    .map(
      ({ name, at }): Finding => ({
        file,
        line: index.locate(at).line,
        rule: "name",
        kind: "name",
        text: name,
      }),
    )
    .filter(({ rule, line }) => !pragmas.isSuppressed(rule, line));
  return {
    findings: [...checked.flatMap(({ findings }) => findings).sort((a, b) => a.line - b.line), ...names],
    words: checked.reduce((sum, { words }) => sum + words, 0),
  };
}

function extract(file: string, text: string, index: LineIndex): Extracted {
  const language = languageOf(file);
  switch (language) {
    case null:
      return { blocks: [], code: null };
    case "markdown":
      return { blocks: markdownBlocks(text), code: null };
    case "shell":
      return { blocks: commentBlocks(shellComments(text), index), code: null };
    case "script":
    case "c": {
      const tokens = [...codeTokens(text, language === "script")];
      const comments = tokens.filter((token) => token.type === "comment");
      const strings = tokens.filter((token) => token.type === "string");
      return {
        blocks: [...commentBlocks(comments, index), ...stringBlocks(file, strings, index)],
        code: isProductCode(file) ? blankTokens(text, tokens) : null,
      };
    }
  }
}

function checkBlock(file: string, block: TextBlock, rules: readonly Rule[], pragmas: Pragmas): CheckedText {
  const masked = maskCode(block);
  const violations = findViolations(file, block, masked, rules, pragmas);
  const findings = violations.map(({ rule, at }) => ({
    file,
    line: lineAt(block, at),
    rule,
    kind: block.kind,
    text: excerpt(block.text, at),
  }));
  return { findings, words: countWords(masked) };
}

/** Returns the text around `at`, cut at a space. */
function excerpt(text: string, at: number): string {
  const start = Math.max(0, text.lastIndexOf(" ", Math.max(0, at - 30)));
  return text
    .slice(start, at + 70)
    .replace(/\s+/g, " ")
    .trim();
}
