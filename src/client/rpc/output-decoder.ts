import type { OutputStream } from "../../exec/exec-process.ts";

/**
 * The hot path of output: a notification recognised and decoded by its bytes. A string of the whole message and a tree
 * from it would cost many times what the chunk itself does.
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

/** Absent in a browser, whose WebSocket gives text anyway. */
const Buffers = (globalThis as { Buffer?: NodeBufferConstructor }).Buffer;

/** As every server of this protocol writes it; anything else goes the general way. */
const HEAD =
  /^\{"method":"process\/output","params":\{"processId":"([ !#-[\]-~]*)","seq":(\d{1,15}),"stream":"(stdout|stderr|pty)","chunk":"/;
const TAIL = '"}}';
/** Longer heads have an unusually long process id. */
const MAX_HEAD_BYTES = 512;
const FIRST_BYTES = '{"method":"process/output"';
/** Text of this length still lives where short-lived strings are cheap; a multiple of four, so that no group is cut. */
const SLICE_CHARS = 64 * 1024;

/** The notification in these bytes; null when they are anything else, or not quite well-formed. */
export function readOutputBytes(message: Uint8Array): OutputNotification | null {
  if (!Buffers?.isBuffer(message) || message.length < FIRST_BYTES.length + TAIL.length) return null;
  // 'o' of "output": cheap enough to look at every message for it.
  if (message[19] !== 0x6f || message[2] !== 0x6d) return null;
  const head = HEAD.exec(message.toString("latin1", 0, Math.min(message.length, MAX_HEAD_BYTES)));
  const end = message.length - TAIL.length;
  if (!head || message.toString("latin1", end, message.length) !== TAIL) return null;
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
  // The decoder skips what it does not know: fewer bytes mean that something was skipped.
  return length === chunk.length ? chunk : null;
}

const EQUALS = 0x3d;

export function isOutputStream(stream: unknown): stream is OutputStream {
  return stream === "stdout" || stream === "stderr" || stream === "pty";
}
