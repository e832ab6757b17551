/**
 * Parses large messages without passing their base64 through JSON.parse, which would scan and copy every character. A
 * large message is nearly always one chunk in a small envelope: a file block, a write or a response. The parser cuts the
 * chunk out, decodes it separately, and parses only the envelope.
 */

import { isObject } from "../base/type-guards.ts";
import { decodeBase64 } from "./base64.ts";
import { type ParsedJson, parseJsonText } from "./json-text.ts";

/** Minimum length of a message. JSON.parse handles shorter ones fast enough. */
const MIN_MESSAGE_CHARS = 32 * 1024;
/** Maximum length of the text before the chunk; allows for the longest path. */
const MAX_HEAD_CHARS = 8 * 1024;

/**
 * Matches the text before a chunk that is a direct member of `params` or `result`. Without a backslash, every quote
 * begins or ends a string. Without another brace, no other object can contain the chunk.
 */
const HEAD = /^\s*\{[^{}\\]*"(params|result)":\{[^{}\\]*?"chunk":"/;

/**
 * Parses a large message like `parseJsonText`, but returns its chunk as a Uint8Array, which the schema `bytes` accepts.
 * Returns null for all other messages. That includes malformed ones, so that `parseJsonText` produces their error.
 */
export function parseWithBinaryChunk(text: string): ParsedJson | null {
  if (text.length < MIN_MESSAGE_CHARS) return null;
  const head = HEAD.exec(text.slice(0, MAX_HEAD_CHARS));
  if (!head) return null;
  const begin = head[0].length;
  const end = text.indexOf('"', begin);
  if (end - begin < MIN_MESSAGE_CHARS / 2) return null;
  const parsed = parseJsonText(text.slice(0, begin) + text.slice(end));
  if (!parsed.ok || !isObject(parsed.value)) return null;
  const container = parsed.value[head[1] ?? ""];
  if (!isObject(container)) return null;
  const chunk = decodeBase64(text.slice(begin, end));
  if (!chunk.ok) return null;
  container.chunk = chunk.bytes;
  return parsed;
}
