import type { ListenAt } from "./accepted-socket.ts";
import type { ByteCodec } from "./byte-codec.ts";
import type { TurnFlusher } from "./turn-flusher.ts";

/** What makes a server's connections fast where the native addon is there. */
export interface WireTuning {
  codec?: ByteCodec;
  /** For lines over stdio; a WebSocket's messages are sent by its socket. */
  flusher?: TurnFlusher;
  listenAt?: ListenAt;
}
