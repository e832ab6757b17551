import type { Message, RequestId } from "../protocol/envelope.ts";
import { parseMessage } from "../protocol/envelope.ts";
import type { LongMessage } from "./long-message.ts";
import type { StraightWay, WriteParams } from "./straight-way.ts";

export type ConnectionEvent =
  | { type: "message"; message: Message }
  /** A `process/write` request, recognised and decoded by its bytes: the one message that carries bulk input. */
  | { type: "write"; id: RequestId; params: WriteParams }
  /** Something came that is no message; the connection lives on. */
  | { type: "malformed"; reason: string }
  /** The last event. `reason` is null when the peer simply left. */
  | { type: "disconnected"; reason: string | null };

export type TakeBytes = (message: Uint8Array) => boolean;

export interface Connection {
  /** Names the peer in error texts, such as `exec-server websocket 127.0.0.1:5000`. */
  readonly label: string;
  /**
   * Begins to deliver events, synchronously and in order. Called once. Whoever can read some messages by their bytes
   * gives `takeBytes`, which is true when it has taken one; transports that carry text alone never ask.
   */
  open(onEvent: (event: ConnectionEvent) => void, takeBytes?: TakeBytes): void;
  /** Queues one message. After the end it does nothing: the end itself was told. */
  send(text: string): void;
  /** Queues one message whose middle is `bytes` as base64: the hot path of output, which never builds a long string. */
  sendChunk(head: string, bytes: Uint8Array, tail: string): void;
  /**
   * Queues one message like `sendChunk` does, for bytes of any length: it is made in parts, as the peer takes them. What
   * is sent meanwhile comes after it. Resolves when all of it has been handed over, or the connection has ended.
   */
  sendLong(message: LongMessage): Promise<void>;
  /** Bytes queued and not yet taken by the system. */
  readonly queuedBytes: number;
  /** Called when a queue that had grown is empty again. */
  onDrain: () => void;
  /** Where the transport can take the input of processes to them by itself. */
  readonly straightWay?: StraightWay | undefined;
  /** Asks the peer's transport for a sign of life, where there is such a thing; `onAnswer` is called when one comes. */
  ping?(onAnswer: () => void): void;
  /** Stops and resumes taking input; what the peer sends meanwhile waits in the system. */
  pause(): void;
  resume(): void;
  /** Ends the connection; `reason` is told to the peer where the transport can. Idempotent. */
  close(reason?: string): void;
}

/**
 * With this many bytes queued a connection counts as crowded: bulk waits for the drain, because later messages go behind it;
 * small messages of others still join the queue.
 */
export const CROWDED_BYTES = 128 * 1024;

/** Above this a connection counts as congested: whoever streams into it waits for the drain. */
export const CONGESTED_BYTES = 1024 * 1024;

/** From the text of one message to the event it is. `kind` stands in the malformed text where the transport has a name of its own. */
export function messageEvent(text: string, label: string, kind: "" | "websocket " = ""): ConnectionEvent {
  const parsed = parseMessage(text);
  if (parsed.ok) return { type: "message", message: parsed.message };
  return {
    type: "malformed",
    reason: `failed to parse ${kind}JSON-RPC message from ${label}: ${parsed.problem}`,
  };
}
