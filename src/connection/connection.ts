import { encodeBase64 } from "../protocol/base64.ts";
import { type Message, type ParsedMessage, parseMessage } from "../protocol/envelope.ts";

export type ConnectionEvent =
  | { type: "message"; message: Message }
  /** An unreadable message. The connection stays open. */
  | { type: "malformed"; reason: string }
  /** The last event. `reason` is null after a normal close. */
  | { type: "disconnected"; reason: string | null };

/** A message with the text `head`, the bytes of `source` as base64, then `tail`. Sent part by part. */
export interface ChunkedMessage {
  head: string;
  source: ByteSource;
  tail: string;
}

/** Bytes that are read part by part, for example a file. The owner closes it after the message is sent. */
export interface ByteSource {
  /**
   * Returns the next part, empty at the end. The length of each part is a multiple of three, except the last one. The part
   * is valid until the next call. A failure closes the connection, because the message cannot end.
   */
  next(): Uint8Array | Promise<Uint8Array>;
}

/** Maximum length of a part before base64. A multiple of three, so that encoded parts concatenate without padding. */
export const SOURCE_PART_BYTES = 240 * 1024;

/** Returns the parts of a buffer. */
export function toByteSource(bytes: Uint8Array): ByteSource {
  let at = 0;
  return {
    next: () => {
      const part = bytes.subarray(at, at + SOURCE_PART_BYTES);
      at += part.length;
      return part;
    },
  };
}

/** Handles a message by its bytes. Returns false to let the connection parse it. */
export type BytesDecoder = (message: Uint8Array) => boolean;

/** Writes process input from the socket to the process without JavaScript (direct input). */
export interface DirectInput {
  /** Enables direct input for a process. `input` is the native object of its stdin. */
  route(processId: string, input: object): void;
  unroute(processId: string): void;
  /** Pauses direct input while a chunked message is being sent, so that responses do not interleave with its parts. */
  setPaused(isPaused: boolean): void;
}

/** File blocks as binary messages instead of base64. `parseBlockMessage` describes their format. */
export interface BinaryBlocks {
  /** Accepts binary blocks from the peer. Called when both sides agreed on the extension. */
  enable(): void;
  /** Queues one message of `text`, which has an empty chunk, and the chunk. The caller may free `bytes` afterwards. */
  send(text: string, bytes: Uint8Array): void;
}

export interface Connection {
  /** Name of the peer in error messages, for example `exec-server websocket 127.0.0.1:5000`. */
  readonly label: string;
  /**
   * Starts delivering events, synchronously and in order. Called once. `decodeBytes` sees the bytes of each message
   * before it is parsed. Text-only transports never call it.
   */
  open(onEvent: (event: ConnectionEvent) => void, decodeBytes?: BytesDecoder): void;
  /** Queues one message. No-op after `disconnected`. */
  send(text: string): void;
  /**
   * Queues `head`, `bytes` as base64 and `tail` as one message. The hot path of output, which builds no long string. The
   * caller may free `bytes` afterwards.
   */
  sendChunk(head: string, bytes: Uint8Array, tail: string): void;
  /**
   * Queues one message like `sendChunk`, but reads and encodes it in parts as the queue drains, for bytes of any length.
   * Later messages follow it. Resolves when all parts are queued, or when the connection ends.
   */
  sendChunked(message: ChunkedMessage): Promise<void>;
  /** Queued bytes that the kernel has not accepted yet. */
  readonly queuedBytes: number;
  /** Called when the send queue drains. */
  onDrain: () => void;
  /** Present if the transport can write process input without JavaScript. */
  readonly directInput?: DirectInput | undefined;
  /** Present if the transport has binary messages. */
  readonly binaryBlocks?: BinaryBlocks | undefined;
  /** Sends a ping if the transport has pings; `onPong` is called for the reply. */
  ping?(onPong: () => void): void;
  /** Pauses and resumes reading. Meanwhile, the kernel buffers the peer's messages. */
  pause(): void;
  resume(): void;
  /** Closes the connection and sends `reason` to the peer if the transport supports it. Idempotent. */
  close(reason?: string): void;
}

/**
 * Bulk queue limit: with more queued bytes, bulk output waits for the drain, because it would delay later messages. Small
 * messages are still queued.
 */
export const BULK_QUEUE_LIMIT_BYTES = 128 * 1024;

/** Queue limit: with more queued bytes, all streaming waits for the drain. */
export const HIGH_WATER_MARK_BYTES = 1024 * 1024;

/** Returns a function that enables binary blocks and passes them on, or undefined if the transport has none. */
export function binaryBlocksEnabler(
  { binaryBlocks }: Connection,
  onEnabled: (blocks: BinaryBlocks) => void,
): (() => void) | undefined {
  if (!binaryBlocks) return undefined;
  return () => {
    binaryBlocks.enable();
    onEnabled(binaryBlocks);
  };
}

/** Sends a chunked message as one text, for transports whose messages have no parts. */
export async function sendAsText(connection: Connection, { head, source, tail }: ChunkedMessage): Promise<void> {
  let text = head;
  for (let part = await source.next(); part.length > 0; part = await source.next()) text += encodeBase64(part);
  connection.send(text + tail);
}

/** Parses one message. `kind` is the name of the transport in the reason of a malformed message. */
export function toConnectionEvent(text: string, label: string, kind: "" | "websocket " = ""): ConnectionEvent {
  return toParsedEvent(parseMessage(text), label, kind);
}

export function toParsedEvent(parsed: ParsedMessage, label: string, kind: "" | "websocket " = ""): ConnectionEvent {
  if (parsed.ok) return { type: "message", message: parsed.message };
  return {
    type: "malformed",
    reason: `failed to parse ${kind}JSON-RPC message from ${label}: ${parsed.problem}`,
  };
}
