import type { ParsedMessage } from "../protocol/envelope.ts";
import type { ListenAddress } from "./accepted-socket.ts";
import type { ClientSocket, CommandStdio, FrameSocket } from "./frame-socket.ts";

/**
 * The byte operations of the hot path, and the sockets of a client. The native addon implements all of them, and faster
 * than `nodeByteCodec`, which has no sockets.
 */
export interface ByteCodec {
  /** Writes `source` as base64 into `target` at `offset`; returns the number of bytes written. */
  base64Encode(source: Uint8Array, target: Uint8Array, offset: number): number;
  /** XORs `length` bytes of `buffer` in place with a WebSocket mask. */
  unmask(buffer: Uint8Array, offset: number, length: number, key: number): void;
  /**
   * Parses a message of any size without blocking the event loop. Takes ownership of its bytes. Resolves to null if they
   * are not UTF-8. Absent without the addon.
   */
  parseLarge?(message: Uint8Array): Promise<ParsedMessage | null>;
  /**
   * Opens the socket of a client on the stdio of a command. `received` holds frame bytes that arrived with the handshake.
   * Returns null without the addon.
   */
  openCommandSocket?(stdio: CommandStdio, received: Buffer, maxMessageBytes: number): FrameSocket | null;
  /**
   * Connects the socket of a client. Returns null without the addon, and for a host name. Throws the error of a failed
   * connection that is known at once.
   */
  connectSocket?(address: ListenAddress): ClientSocket | null;
}

export function base64Length(bytes: number): number {
  return Math.ceil(bytes / 3) * 4;
}

export const nodeByteCodec: ByteCodec = {
  base64Encode(source, target, offset) {
    const text = Buffer.from(source.buffer, source.byteOffset, source.byteLength).toString("base64");
    return Buffer.from(target.buffer, target.byteOffset, target.byteLength).write(text, offset, "latin1");
  },
  unmask(buffer, offset, length, key) {
    const mask = [key >>> 24, (key >>> 16) & 255, (key >>> 8) & 255, key & 255];
    for (let at = 0; at < length; at++) buffer[offset + at] = (buffer[offset + at] ?? 0) ^ (mask[at & 3] ?? 0);
  },
};
