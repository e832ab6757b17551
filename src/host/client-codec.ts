import { type ByteCodec, nodeByteCodec } from "../connection/byte-codec.ts";
import { loadAddon, loadBuiltAddon } from "../native/load-addon.ts";
import { connectNativeSocket, NativeClientSocket } from "../native/native-client-socket.ts";
import { nativeCodec } from "../native/native-codec.ts";

/** Minimum input that is worth loading the addon, which takes as long as encoding some hundred KiB without it. */
const NATIVE_CODEC_BYTES = 16 * 1024;

/** Returns a byte codec for a client: that of the addon after the first long input, if the addon is available. */
export function lazyNativeCodec(): ByteCodec {
  let native: ByteCodec | null = null;
  const forLength = (bytes: number): ByteCodec => {
    if (native === null && bytes >= NATIVE_CODEC_BYTES) {
      const loaded = loadAddon();
      native = loaded.type === "loaded" ? nativeCodec(loaded.addon) : nodeByteCodec;
    }
    return native ?? nodeByteCodec;
  };
  return {
    base64Encode: (source, target, offset) => forLength(source.length).base64Encode(source, target, offset),
    unmask: (buffer, offset, length, key) => forLength(length).unmask(buffer, offset, length, key),
    openCommandSocket(stdio, received, maxMessageBytes) {
      const loaded = loadAddon();
      if (loaded.type !== "loaded") return null;
      const socket = loaded.addon.openClientSocket(stdio.stdout, stdio.stdin);
      if (typeof socket === "number") return null;
      return new NativeClientSocket(loaded.addon, socket, stdio).upgrade(received, maxMessageBytes);
    },
    connectSocket(address) {
      // A short command does not wait for a compiler.
      const addon = loadBuiltAddon();
      return addon && connectNativeSocket(addon, address);
    },
  };
}
