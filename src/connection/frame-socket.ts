import type { RequestId } from "../protocol/envelope.ts";
import type { StraightWay, WriteParams } from "./straight-way.ts";

/** What a socket gives. Frames come as bytes; one that can read them by itself gives whole messages instead. */
export interface FrameSocketEvents {
  /** Frames, split anywhere. */
  bytes(chunk: Buffer): void;
  /** A whole text message in ASCII. */
  text(text: string): void;
  /** A whole text message, its bytes not looked at. */
  message(payload: Buffer): void;
  /** A `process/write`, recognised and decoded by its bytes. */
  write(id: RequestId, params: WriteParams): void;
  /** The send queue is empty again. */
  drain(): void;
  /** The peer sends nothing more. */
  end(): void;
  /** It is closed; `problem` is null when nothing went wrong. */
  close(problem: string | null): void;
}

/** The socket below one WebSocket whose handshake is done: it builds and sends frames, and gives what comes. */
export interface FrameSocket {
  /** Called once; what was received with the handshake comes first. */
  open(events: FrameSocketEvents): void;
  sendText(text: string): void;
  /** A text message whose middle is `bytes` as base64. */
  sendChunk(head: string, bytes: Uint8Array, tail: string): void;
  /** A frame that is built already. */
  sendFrame(frame: Buffer): void;
  /** Bytes not yet taken by the system. */
  readonly queuedBytes: number;
  /** Bytes the system has taken so far. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
  pause(): void;
  resume(): void;
  /** Sends what is queued and closes its side. */
  end(): void;
  /** Closes at once. No `close` is told of it. */
  destroy(): void;
  readonly straightWay?: StraightWay | undefined;
}
