/**
 * What a program asks its terminal: device attributes, status and cursor reports, modes, window reports, colours. A terminal
 * answers as if somebody typed it.
 */
const QUERIES =
  /\x1b\[[>=]?\d*c|\x1b\[\??[56]n|\x1b\[\??\d+\$p|\x1b\[1[1-9]t|\x1b\[2[01]t|\x1b\[>\d*q|\x1b\[\?u|\x1b\](?:4;\d+|1\d);\?(?:\x07|\x1b\\)|\x1bP[+$]q[^\x1b]*\x1b\\/g;

/** Output of the past without its questions: they were asked then, and an answer now would be typed into the program. */
export function withoutQueries(chunk: Uint8Array): Uint8Array {
  if (!chunk.includes(0x1b)) return chunk;
  return Buffer.from(Buffer.from(chunk).toString("latin1").replace(QUERIES, ""), "latin1");
}
