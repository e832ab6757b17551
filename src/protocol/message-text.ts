/**
 * The JSON text of messages: the only module that builds JSON by hand, and the recognizers of that text. Messages with a
 * binary chunk are built and decoded around the chunk, because JSON.stringify and JSON.parse are slow for long strings:
 * `head`, the chunk as base64 and `tail` form the message. A recognizer returns null for every other text, which the
 * general parser then handles. `native/net/write-request.cc` is the recognizer of `writeHead` in the addon.
 */

import { isObject } from "../base/type-guards.ts";
import { decodeBase64, isCanonicalEnd } from "./base64.ts";
import type { RequestId, Trace } from "./envelope.ts";
import type { WireError } from "./errors.ts";
import { type ParsedJson, parseJsonText } from "./json-text.ts";
import { type OutputNotification, outputStream } from "./process-schemas.ts";

// ---- messages without a chunk. Ids are inserted as text, because JSON.stringify rejects a bigint.

export function encodeRequest(id: RequestId, method: string, params: unknown, trace?: Trace): string {
  const tail = params === undefined ? "" : `,"params":${JSON.stringify(params)}`;
  const context = trace === undefined ? "" : `,"trace":${JSON.stringify(trace)}`;
  return `{"id":${idText(id)},"method":${JSON.stringify(method)}${tail}${context}}`;
}

export function encodeNotification(method: string, params: unknown): string {
  return JSON.stringify(params === undefined ? { method } : { method, params });
}

export function encodeResponse(id: RequestId, result: unknown): string {
  return `{"id":${idText(id)},"result":${JSON.stringify(result)}}`;
}

/** `entries` is the JSON text of the elements, and `others` are the other members of the result. */
export function encodeListing(id: RequestId, entries: string, others: object): string {
  const rest = JSON.stringify(others).slice(1);
  return `{"id":${idText(id)},"result":{"entries":[${entries}]${rest === "}" ? "" : ","}${rest}}`;
}

export function encodeError(id: RequestId, error: WireError): string {
  return `{"error":${JSON.stringify(error)},"id":${idText(id)}}`;
}

function idText(id: RequestId): string {
  return typeof id === "string" ? JSON.stringify(id) : String(id);
}

// ---- text around a chunk

/** Text after a chunk that is the last member of `params` or `result`. */
export const CHUNK_TAIL = '"}}';

/** The ids of notifications are passed as JSON text, because a connection caches the text of each id. */
export function outputHead(processIdJson: string, seq: number, stream: string): string {
  return `{"method":"process/output","params":{"processId":${processIdJson},"seq":${seq},"stream":"${stream}","chunk":"`;
}

export function forwardDataHead(streamIdJson: string): string {
  return `{"method":"forward/data","params":{"streamId":${streamIdJson},"chunk":"`;
}

export function v0OutputHead(sessionIdJson: string, stream: string): string {
  return `{"method":"command/exec/outputDelta","params":{"sessionId":${sessionIdJson},"stream":"${stream}","chunk":"`;
}

export function readFileHead(id: RequestId): string {
  return `{"id":${idText(id)},"result":{"dataBase64":"`;
}

export function readBlockHead(id: RequestId): string {
  return `{"id":${idText(id)},"result":{"chunk":"`;
}

export function readBlockTail(eof: boolean): string {
  return `","eof":${eof}}}`;
}

export function writeHead(id: number, processId: string, writeId: string | undefined): string {
  const key = writeId === undefined ? "" : `"writeId":${JSON.stringify(writeId)},`;
  return `{"id":${id},"method":"process/write","params":{"processId":${JSON.stringify(processId)},${key}"chunk":"`;
}

export function writeBlockHead(id: number, handleId: string, offset: number): string {
  return `{"id":${id},"method":"fs/writeBlock","params":{"handleId":${JSON.stringify(handleId)},"offset":${offset},"chunk":"`;
}

export function writeBlockTail(trace: Trace | undefined): string {
  return trace === undefined ? CHUNK_TAIL : `"},"trace":${JSON.stringify(trace)}}`;
}

// ---- recognizer of output, the hot path of a client

/** Matches the text of `outputHead`. Groups: process id, sequence number, stream. */
const OUTPUT_HEAD =
  /^\{"method":"process\/output","params":\{"processId":"([ !#-[\]-~]*)","seq":(0|[1-9]\d{0,14}),"stream":"(stdout|stderr|pty)","chunk":"/;
/** Shortest message that `OUTPUT_HEAD` matches, in bytes. */
const MIN_OUTPUT_BYTES = outputHead('""', 0, "pty").length + CHUNK_TAIL.length;
/** Maximum bytes before the chunk; a longer head has an unusually long process id. */
const MAX_OUTPUT_HEAD_BYTES = 512;
/** Characters decoded at once. Temporary strings of this length are cheap. A multiple of 4, so that no group is split. */
const SLICE_CHARS = 64 * 1024;
const EQUALS = 0x3d;

/** The members of Node's Buffer that this module uses. */
type NodeBuffer = Uint8Array & {
  toString(encoding: "latin1", from: number, to: number): string;
  write(text: string, offset: number, encoding: "base64"): number;
};

interface NodeBufferConstructor {
  allocUnsafe(length: number): NodeBuffer;
  isBuffer(value: unknown): value is NodeBuffer;
}

/** Undefined in a browser, whose WebSocket delivers text anyway. */
const Buffers = (globalThis as { Buffer?: NodeBufferConstructor }).Buffer;

/**
 * Decodes an output notification from its bytes. Returns null for every other message. A string and an object tree of the
 * whole message would cost many times more than the chunk.
 */
export function decodeOutputNotification(message: Uint8Array): OutputNotification | null {
  if (!Buffers?.isBuffer(message) || message.length < MIN_OUTPUT_BYTES) return null;
  // Checks two bytes first, because this runs for every message: 'o' of "output" and 'm' of "method".
  if (message[19] !== 0x6f || message[2] !== 0x6d) return null;
  const head = OUTPUT_HEAD.exec(message.toString("latin1", 0, Math.min(message.length, MAX_OUTPUT_HEAD_BYTES)));
  const end = message.length - CHUNK_TAIL.length;
  if (!head || message.toString("latin1", end, message.length) !== CHUNK_TAIL) return null;
  const [matched, processId = "", seq, stream] = head;
  const chunk = decodeChunk(Buffers, message, matched.length, end);
  return chunk && { processId, seq: Number(seq), stream: outputStream.decode(stream), chunk };
}

function decodeChunk(buffers: NodeBufferConstructor, message: NodeBuffer, from: number, to: number): Uint8Array | null {
  const chars = to - from;
  if (chars < 0 || chars % 4 !== 0) return null;
  const padding = chars === 0 ? 0 : message[to - 2] === EQUALS ? 2 : message[to - 1] === EQUALS ? 1 : 0;
  const chunk = buffers.allocUnsafe((chars / 4) * 3 - padding);
  let length = 0;
  for (let at = from; at < to; at += SLICE_CHARS) {
    const slice = message.toString("latin1", at, Math.min(to, at + SLICE_CHARS));
    // Buffer also decodes the URL-safe alphabet, which the protocol rejects.
    if (slice.includes("-") || slice.includes("_")) return null;
    length += chunk.write(slice, length, "base64");
  }
  // The decoder skips invalid characters: fewer bytes mean that some were skipped.
  if (length !== chunk.length) return null;
  return padding === 0 || isCanonicalEnd(message.toString("latin1", to - 4, to), chunk) ? chunk : null;
}

// ---- recognizer of all other chunks

/** Minimum length of a message. JSON.parse handles shorter ones fast enough. */
const MIN_MESSAGE_CHARS = 32 * 1024;
/** Maximum length of the text before the chunk; allows for the longest path. */
const MAX_HEAD_CHARS = 8 * 1024;

/**
 * Matches the text before a chunk that is a direct member of `params` or `result`. Without a backslash, every quote
 * begins or ends a string. Without another brace, no other object can contain the chunk.
 */
const CHUNK_HEAD = /^\s*\{[^{}\\]*"(params|result)":\{[^{}\\]*?"chunk":"/;

/**
 * Parses a large message like `parseJsonText`, but returns its chunk as a Uint8Array, which the schema `bytes` accepts.
 * A large message is nearly always one chunk in a small envelope: a file block, a write or a response. Returns null for
 * all other messages. That includes malformed ones, so that `parseJsonText` produces their error.
 */
export function parseWithBinaryChunk(text: string): ParsedJson | null {
  if (text.length < MIN_MESSAGE_CHARS) return null;
  const head = CHUNK_HEAD.exec(text.slice(0, MAX_HEAD_CHARS));
  if (!head) return null;
  const begin = head[0].length;
  const end = text.indexOf('"', begin);
  // The rest is parsed on the event loop, so it must be short.
  if (end - begin < MIN_MESSAGE_CHARS / 2 || text.length - end > MAX_HEAD_CHARS) return null;
  const parsed = parseJsonText(text.slice(0, begin) + text.slice(end));
  if (!parsed.ok || !isObject(parsed.value)) return null;
  const container = parsed.value[head[1] ?? ""];
  if (!isObject(container)) return null;
  const chunk = decodeBase64(text.slice(begin, end));
  if (!chunk.ok) return null;
  container.chunk = chunk.bytes;
  return parsed;
}
