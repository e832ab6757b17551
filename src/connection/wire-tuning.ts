import type { ByteCodec } from "./byte-codec.ts";
import type { TurnFlusher } from "./turn-flusher.ts";

/** What makes a server's connections fast where the native addon is there. */
export interface WireTuning {
  codec?: ByteCodec;
  flusher?: TurnFlusher;
}
