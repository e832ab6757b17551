/**
 * Messages of the extension `binaryBlocks`: a file block as bytes instead of base64. A binary WebSocket message consists
 * of the length of the JSON text (32 bits, big endian), the JSON text of the message with an empty `chunk`, and the bytes
 * of the chunk. It begins with a zero byte, because the text is short; no JSON text does.
 */

import { decodeValidUtf8 } from "../base/text/utf8.ts";
import { isObject } from "../base/type-guards.ts";
import { type ParsedMessage, toMessage } from "./envelope.ts";
import { parseJsonText } from "./json-text.ts";

/** Bytes of the length before the text. */
export const BLOCK_LENGTH_BYTES = 4;
/** Maximum length of the text, which is parsed on the event loop. */
export const MAX_BLOCK_TEXT_BYTES = 8 * 1024;

export function isBlockMessage(message: Uint8Array): boolean {
  return message[0] === 0;
}

/** Parses a block message. Its chunk is a view of `message`, which the schema `bytes` accepts. */
export function parseBlockMessage(message: Uint8Array): ParsedMessage {
  if (message.length < BLOCK_LENGTH_BYTES)
    return { ok: false, problem: "a binary block without the length of its text" };
  const textBytes = new DataView(message.buffer, message.byteOffset).getUint32(0);
  const end = BLOCK_LENGTH_BYTES + textBytes;
  if (textBytes > MAX_BLOCK_TEXT_BYTES || end > message.length)
    return { ok: false, problem: `a binary block of ${message.length} bytes has a text of ${textBytes} bytes` };
  const text = decodeValidUtf8(message.subarray(BLOCK_LENGTH_BYTES, end));
  if (text === null) return { ok: false, problem: "it is not UTF-8" };
  const parsed = parseJsonText(text);
  if (!parsed.ok) return parsed;
  const container = isObject(parsed.value) ? (parsed.value.params ?? parsed.value.result) : null;
  if (!isObject(container) || container.chunk !== "")
    return { ok: false, problem: 'the text of a binary block has no `"chunk":""`' };
  container.chunk = message.subarray(end);
  return toMessage(parsed);
}
