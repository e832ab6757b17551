/** Kinds of prose: a rule may apply to some of them only. */
export const KINDS = ["comment", "help", "error", "test", "doc"] as const;

export type Kind = (typeof KINDS)[number];

/** A line of the file that a block contains. */
export interface BlockLine {
  /** Offset in the text of the block at which the line starts. */
  at: number;
  /** Line number in the file, from 1. */
  line: number;
  /** Columns of the whole line in the file; only comments have a limit. */
  columns?: number;
}

/** Prose that belongs together: a comment, a paragraph, a list item, a table cell or a string. */
export interface TextBlock {
  kind: Kind;
  text: string;
  /** In ascending order; never empty. */
  lines: BlockLine[];
  isHeading?: boolean;
}

/** Returns the line number of the file for an offset in the text of a block. */
export function lineAt({ lines }: TextBlock, offset: number): number {
  return (lines.findLast(({ at }) => at <= offset) ?? lines[0])?.line ?? 1;
}

/** Appends a line of the file to a block, separated by a space. */
export function appendLine(block: TextBlock, content: string, place: Omit<BlockLine, "at">): void {
  if (block.lines.length > 0) block.text += " ";
  block.lines.push({ at: block.text.length, ...place });
  block.text += content;
}
