import type { Message } from "../protocol/envelope.ts";
import type { DirectInput } from "./connection.ts";
import type { MessageKind } from "./websocket-frames.ts";

/** Events of a FrameSocket. A Node socket delivers raw bytes; the native socket parses frames and delivers messages. */
export interface FrameSocketEvents {
  /** Raw bytes of frames, split at any position. */
  bytes(chunk: Buffer): void;
  /** A complete text message in ASCII. */
  text(text: string): void;
  /** A complete message whose encoding is not validated. The receiver owns `payload`. */
  message(payload: Buffer, kind: MessageKind): void;
  /** A message that the socket decoded from its bytes. */
  decoded(message: Message): void;
  /** The send queue drained. */
  drain(): void;
  /** The peer closed its sending side. */
  end(): void;
  /** The socket closed; `problem` is null after a normal close. */
  close(problem: string | null): void;
}

/** First byte of a frame: FIN and opcode of a whole text message, or of a part of one. */
export const FrameOpening = { whole: 0x81, first: 0x01, middle: 0x00, last: 0x80 } as const;
export type FrameOpening = (typeof FrameOpening)[keyof typeof FrameOpening];

/** The socket of one WebSocket connection after the handshake. Builds and sends frames, and delivers received ones. */
export interface FrameSocket {
  /** Starts delivering events, first the bytes that arrived with the handshake. Called once. */
  open(events: FrameSocketEvents): void;
  sendText(text: string): void;
  /** Sends `head`, `bytes` as base64 and `tail` as one frame. Default: a whole message. */
  sendChunk(head: string, bytes: Uint8Array, tail: string, opening?: FrameOpening): void;
  /** Sends a binary block of `text` and `bytes` as one message. Copies both. */
  sendBlock(text: string, bytes: Uint8Array): void;
  /** Sends a complete frame. */
  sendFrame(frame: Buffer): void;
  /** Queued bytes that the kernel has not accepted yet. */
  readonly queuedBytes: number;
  /** Total bytes that the kernel has accepted. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
  pause(): void;
  resume(): void;
  /** Sends the queue and closes this side. */
  end(): void;
  /** Closes the socket immediately, without a `close` event. */
  destroy(): void;
  readonly directInput?: DirectInput | undefined;
}

/** A command, such as ssh, whose stdio is the connection of a client. */
export interface CommandStdio {
  /** Descriptors of both ends. A socket duplicates them. */
  readonly stdin: number;
  readonly stdout: number;
  /** Resolves when the command has exited: to a description of its failure, or null for exit code 0. */
  readonly ended: Promise<string | null>;
  /** Terminates the command. */
  end(): void;
}

export interface ClientSocketEvents {
  bytes(chunk: Buffer): void;
  /** Called when the peer ends its side or the socket closes; with the error of a failed socket. */
  end(error?: Error): void;
}

/** The socket of a client before its upgrade to WebSocket. It may still be connecting. */
export interface ClientSocket {
  /** Sends the request, one byte per character, and starts delivering events. Called once. */
  start(request: string, events: ClientSocketEvents): void;
  /** Switches to WebSocket frames, the first of them in `received`. Stops the events of `start`. */
  upgrade(received: Buffer, maxMessageBytes: number): FrameSocket;
  /** Closes the socket immediately. */
  destroy(): void;
}
