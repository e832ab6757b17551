import { appendLine, type TextBlock } from "./text-block.ts";

const FENCE = /^\s*(```+|~~~+)/;
const TABLE_RULE = /^\s*\|?[\s:|-]+\|?\s*$/;
const HEADING = /^\s*#{1,6}\s/;
const LIST_ITEM = /^\s*(?:[-*+]|\d+\.)\s/;
const LINE_MARKER = /^\s*(?:#{1,6}|[-*+]|\d+\.|>)\s+/;

/** Returns the headings, paragraphs, list items and table cells of a Markdown file, without code and HTML comments. */
export function markdownBlocks(text: string): TextBlock[] {
  const blocks: TextBlock[] = [];
  let open: TextBlock | null = null;
  for (const [line, content] of proseLines(text)) {
    const isHeading = HEADING.test(content);
    if (content.trim() === "" || TABLE_RULE.test(content)) {
      open = null;
    } else if (content.trimStart().startsWith("|")) {
      open = null;
      blocks.push(...tableCells(content, line));
    } else {
      if (open === null || isHeading || LIST_ITEM.test(content)) {
        open = { kind: "doc", text: "", lines: [], isHeading };
        blocks.push(open);
      }
      appendLine(open, content.replace(LINE_MARKER, "").replaceAll("**", "  ").trim(), { line });
      if (isHeading) open = null;
    }
  }
  return blocks;
}

/** Yields the number and text of each line; lines of code blocks and HTML comments are empty. */
function* proseLines(text: string): Generator<[line: number, content: string]> {
  let fence: string | null = null;
  let isInComment = false;
  for (const [index, content] of text.split("\n").entries()) {
    const marker = FENCE.exec(content)?.[1] ?? null;
    let isProse = false;
    if (fence !== null) {
      if (marker?.startsWith(fence)) fence = null;
    } else if (marker !== null) {
      fence = marker;
    } else if (isInComment || /^\s*<!--/.test(content)) {
      isInComment = !content.includes("-->");
    } else {
      isProse = true;
    }
    yield [index + 1, isProse ? content : ""];
  }
}

function tableCells(row: string, line: number): TextBlock[] {
  return row
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim())
    .filter((cell) => cell !== "")
    .map((text) => ({ kind: "doc", text, lines: [{ at: 0, line }] }));
}
