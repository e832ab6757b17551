import { closeSync, constants, fstatSync, openSync, readdirSync, readSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parseObject } from "../../base/json-fields.ts";
import { printableJson } from "../../base/text/printable-text.ts";

/** A position in the chain: the sequence number and the digest of a line. */
export interface ChainPosition {
  seq: number;
  digest: string;
}

/** Position before the first line. */
export const CHAIN_START: ChainPosition = { seq: 0, digest: "0".repeat(64) };

/** A line as text without line break, with its position. */
interface ChainedLine extends ChainPosition {
  text: string;
}

/** Returns the line of an entry. Escapes all control and format characters. */
export function encodeLine(former: ChainPosition, entry: object): ChainedLine {
  const seq = former.seq + 1;
  const text = printableJson({ seq, prev: former.digest, ...entry });
  return { seq, text, digest: digestOf(text) };
}

/** Returns the SHA-256 of the bytes of a line without its line break, in hexadecimal digits. */
export function digestOf(line: string | Buffer): string {
  return process.getBuiltinModule("node:crypto").hash("sha256", line, "hex");
}

/** A decoded line. */
export interface DecodedLine extends ChainPosition {
  /** Digest of the line before. */
  prev: string;
  event: string;
  /** Of `log/fragment`: digest of the incomplete line. */
  fragmentDigest: string | undefined;
}

/** Returns the decoded line, or null if it is not a line of an audit log. */
export function decodeLine(line: Buffer): DecodedLine | null {
  const { seq, prev, event, digest } = parseObject(line.toString("utf8")) ?? {};
  if (typeof seq !== "number" || !Number.isSafeInteger(seq) || seq < 1) return null;
  if (typeof prev !== "string" || !isDigest(prev) || typeof event !== "string") return null;
  const fragmentDigest = event === "log/fragment" && typeof digest === "string" ? digest : undefined;
  return { seq, prev, event, digest: digestOf(line), fragmentDigest };
}

export function isDigest(text: string): boolean {
  return /^[0-9a-f]{64}$/.test(text);
}

/** End of an existing file. */
export interface FileTail {
  /** Last complete line; null if the file has none, `unreadable` if that is not a line of an audit log. */
  last: ChainPosition | "unreadable" | null;
  /** Bytes after the last line break; empty unless a write was interrupted. */
  fragment: Buffer;
  size: number;
}

const LINE_FEED = 0x0a;
/** Bytes read at first from the end of a file. Longer than almost every line. */
const FIRST_TAIL_BYTES = 64 * 1024;
/** Maximum bytes read from the end of a file. Longer than every line of an audit log. */
const MAX_TAIL_BYTES = 4 * 1024 * 1024;

const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;

/** Reads the end of a file. */
export function readTail(path: string): FileTail {
  const fd = openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const { size } = fstatSync(fd);
    for (let length = FIRST_TAIL_BYTES; ; length *= 4) {
      const start = Math.max(0, size - length);
      const bytes = Buffer.alloc(size - start);
      readSync(fd, bytes, 0, bytes.length, start);
      const end = bytes.lastIndexOf(LINE_FEED);
      const before = end <= 0 ? -1 : bytes.lastIndexOf(LINE_FEED, end - 1);
      if (before < 0 && start > 0 && length < MAX_TAIL_BYTES) continue;
      const fragment = bytes.subarray(end + 1);
      if (before < 0 && start > 0) return { last: "unreadable", fragment, size };
      if (end < 0) return { last: null, fragment, size };
      return { last: decodeLine(bytes.subarray(before + 1, end)) ?? "unreadable", fragment, size };
    }
  } finally {
    closeSync(fd);
  }
}

/**
 * Returns the last line of the rotated files of a log: `audit.jsonl.1`, `audit.jsonl-20260101`. Null if no file has one.
 * Ignores compressed files.
 */
export function findRotatedTail(path: string): ChainPosition | null {
  let latest: ChainPosition | null = null;
  const prefix = basename(path);
  for (const name of readdirSync(dirname(path))) {
    if (!name.startsWith(prefix) || !/^[.-]/.test(name.slice(prefix.length))) continue;
    const last = tryReadLast(join(dirname(path), name));
    if (last && last.seq > (latest?.seq ?? 0)) latest = last;
  }
  return latest;
}

function tryReadLast(path: string): ChainPosition | null {
  try {
    const { last } = readTail(path);
    return last === "unreadable" ? null : last;
  } catch {
    // A directory, a link, or a file of another user.
    return null;
  }
}
