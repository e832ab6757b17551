import type { LineIndex } from "./line-index.ts";
import { appendLine, type TextBlock } from "./text-block.ts";

export interface CommentSource {
  text: string;
  from: number;
  to: number;
}

interface OpenBlock {
  block: TextBlock;
  nextLine: number;
  column: number;
}

/** Returns one block per block comment, and one per run of line comments that start at the same column. */
export function commentBlocks(comments: readonly CommentSource[], index: LineIndex): TextBlock[] {
  const blocks: TextBlock[] = [];
  let open: OpenBlock | null = null;
  for (const { text, from } of comments) {
    const { line, column, before } = index.locate(from);
    const isBlockComment = text.startsWith("/*");
    const canContinue = before.trim() === "" && !isBlockComment;
    const block: TextBlock =
      canContinue && open?.nextLine === line && open.column === column
        ? open.block
        : { kind: "comment", text: "", lines: [] };
    if (block.lines.length === 0) blocks.push(block);
    const parts = text.split("\n");
    for (const [offset, part] of parts.entries()) {
      const content = isBlockComment ? withoutStars(part) : part.replace(/^(?:\/\/+|#+)\s?/, "");
      appendLine(block, content.trim(), { line: line + offset, columns: index.columns(line + offset) });
    }
    open = canContinue ? { block, nextLine: line + parts.length, column } : null;
  }
  return blocks;
}

function withoutStars(line: string): string {
  return line
    .replace(/^\s*\/\*+/, "")
    .replace(/\*+\/\s*$/, "")
    .replace(/^\s*\*?\s?/, "");
}
