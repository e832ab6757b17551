import type { OutputStream } from "../../exec/exec-process.ts";
import { CHUNK_TAIL, OUTPUT_HEAD_PATTERN, OUTPUT_PREFIX } from "../../protocol/chunk-messages.ts";

/**
 * Decodes output notifications from their bytes, the hot path of output. A string and an object tree of the whole
 * message would cost many times more than the chunk.
 */

export interface OutputNotification {
  processId: string;
  seq: number;
  stream: OutputStream;
  chunk: Uint8Array;
}

/** The part of Node's Buffer used here. */
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

/** Maximum bytes before the chunk; a longer head has an unusually long process id. */
const MAX_HEAD_BYTES = 512;
/**
 * Characters decoded at once: short enough for cheap temporary strings, and a multiple of 4 so that no group is
 * split.
 */
const SLICE_CHARS = 64 * 1024;

/** Returns the notification, or null if the bytes are anything else or malformed. */
export function decodeOutputNotification(message: Uint8Array): OutputNotification | null {
  if (!Buffers?.isBuffer(message) || message.length < OUTPUT_PREFIX.length + CHUNK_TAIL.length) return null;
  // Checks two bytes first, because this runs for every message: 'o' of "output" and 'm' of "method".
  if (message[19] !== 0x6f || message[2] !== 0x6d) return null;
  const head = OUTPUT_HEAD_PATTERN.exec(
    message.toString("latin1", 0, Math.min(message.length, MAX_HEAD_BYTES)),
  );
  const end = message.length - CHUNK_TAIL.length;
  if (!head || message.toString("latin1", end, message.length) !== CHUNK_TAIL) return null;
  const [matched, processId = "", seq, stream] = head;
  const chunk = decode(message, matched.length, end);
  if (!chunk || !isOutputStream(stream)) return null;
  return { processId, seq: Number(seq), stream, chunk };
}

function decode(message: NodeBuffer, from: number, to: number): Uint8Array | null {
  const chars = to - from;
  if (chars < 0 || chars % 4 !== 0 || !Buffers) return null;
  const padding = chars === 0 ? 0 : message[to - 2] === EQUALS ? 2 : message[to - 1] === EQUALS ? 1 : 0;
  const chunk = Buffers.allocUnsafe((chars / 4) * 3 - padding);
  let length = 0;
  for (let at = from; at < to; at += SLICE_CHARS)
    length += chunk.write(message.toString("latin1", at, Math.min(to, at + SLICE_CHARS)), length, "base64");
  // The decoder skips invalid characters: fewer bytes mean that some were skipped.
  return length === chunk.length ? chunk : null;
}

const EQUALS = 0x3d;

export function isOutputStream(stream: unknown): stream is OutputStream {
  return stream === "stdout" || stream === "stderr" || stream === "pty";
}
