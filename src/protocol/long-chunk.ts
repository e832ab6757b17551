/**
 * A long message is nearly always one chunk of bytes in a small envelope: a block of a file, a write, an answer. JSON's
 * parser would look at each of its characters and copy them, so the chunk is cut out and decoded by itself, and only the
 * envelope is parsed.
 */

import { decodeBase64 } from "./base64.ts";
import { type JsonText, parseJsonText } from "./json-text.ts";
import { isObject } from "./schema.ts";

/** A shorter message is parsed as it is. */
const WORTH_CUTTING_CHARS = 32 * 1024;
/** Where the chunk of an envelope begins at the latest: behind a path of the longest kind. */
const MOST_HEAD_CHARS = 8 * 1024;

/**
 * The chunk is a member of `params` or `result` itself. Without a backslash every quote begins or ends a string, and with no
 * other brace before it there is no other object it could be in.
 */
const HEAD = /^\s*\{[^{}\\]*"(params|result)":\{[^{}\\]*?"chunk":"/;

/**
 * Parses the text of a message like `parseJsonText`, with the chunk of a long one as a Uint8Array, which `bytes` of a schema
 * takes as it is. Null for everything else, also for what is not quite well-formed: the general way words the refusal.
 */
export function parseAroundChunk(text: string): JsonText | null {
  if (text.length < WORTH_CUTTING_CHARS) return null;
  const head = HEAD.exec(text.slice(0, MOST_HEAD_CHARS));
  if (!head) return null;
  const begin = head[0].length;
  const end = text.indexOf('"', begin);
  if (end - begin < WORTH_CUTTING_CHARS / 2) return null;
  const parsed = parseJsonText(text.slice(0, begin) + text.slice(end));
  if (!parsed.ok || !isObject(parsed.value)) return null;
  const carrier = parsed.value[head[1] ?? ""];
  if (!isObject(carrier)) return null;
  const chunk = decodeBase64(text.slice(begin, end));
  if (!chunk.ok) return null;
  carrier.chunk = chunk.bytes;
  return parsed;
}
