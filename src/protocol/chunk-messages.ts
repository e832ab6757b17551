import type { RequestId, Trace } from "./envelope.ts";
import { idText } from "./envelope.ts";

/**
 * Messages with a binary chunk, built as text around the chunk instead of with JSON.stringify, which is slow for long
 * strings. `head`, the chunk as base64 and `tail` form the message. This module owns the text of all such messages and the
 * pattern that recognizes `process/output`; `large-chunk-parser.ts` parses the others.
 */

/** Text after a chunk that is the last member of `params` or `result`. */
export const CHUNK_TAIL = '"}}';

/** Ids are passed as JSON text, because a connection caches the text of each id. */
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

/** Matches the text of `outputHead`. Groups: process id, sequence number, stream. Other forms need the general parser. */
export const OUTPUT_HEAD_PATTERN =
  /^\{"method":"process\/output","params":\{"processId":"([ !#-[\]-~]*)","seq":(\d{1,15}),"stream":"(stdout|stderr|pty)","chunk":"/;

/** Shortest prefix of `outputHead`. */
export const OUTPUT_PREFIX = '{"method":"process/output"';
