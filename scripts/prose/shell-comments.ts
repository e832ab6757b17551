import type { CommentSource } from "./comment-blocks.ts";

/** A comment starts at the beginning of a word. Comments after code on the same line may be inside a string. */
const COMMENT = /^[ \t]*(#(?!!).*)$/gm;

/** Returns the comments of a shell script that are alone on their line. */
export function shellComments(source: string): CommentSource[] {
  return [...source.matchAll(COMMENT)].map(({ 0: line, 1: text = "", index }) => {
    const to = index + line.length;
    return { text, from: to - text.length, to };
  });
}
