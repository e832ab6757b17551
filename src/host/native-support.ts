/**
 * Selects the sockets of the addon if it is available. Only composition roots import it: code that listens or connects
 * receives its sockets.
 */

import { runInNewContext } from "node:vm";
import type { ByteCodec } from "../connection/byte-codec.ts";
import type { SocketProvider } from "../connection/socket-provider.ts";
import { loadAddon } from "../native/addon.ts";
import { nativeCodec, nativeSocketProvider } from "../native/native-sockets.ts";

/** Returns the addon's sockets; undefined if it is missing. */
export function nativeSocketsIfAvailable(): SocketProvider | undefined {
  const loaded = loadAddon();
  return loaded.type === "loaded" ? nativeSocketProvider(loaded.addon) : undefined;
}

/** Returns the addon's byte codec; undefined if it is missing. */
export function nativeCodecIfAvailable(): ByteCodec | undefined {
  const loaded = loadAddon();
  return loaded.type === "loaded" ? nativeCodec(loaded.addon) : undefined;
}

/** Retains freed memory for the next chunk until the server is idle. For a server only. */
export function retainFreedMemory(): void {
  const loaded = loadAddon();
  if (loaded.type === "loaded") loaded.addon.retainFreedMemory(collectGarbage);
}

let collect: (() => void) | null = null;

/** V8 collects unused chunks only on allocation, so an idle server would retain them forever. */
function collectGarbage(): void {
  if (!collect) {
    // `gc` exists only in new contexts, so the rest of the process is unchanged.
    // Imported here, because node:v8 imports node:stream, which takes a twentieth of a server's start time.
    process.getBuiltinModule("node:v8").setFlagsFromString("--expose-gc");
    const found: unknown = runInNewContext("gc");
    collect = typeof found === "function" ? () => void found() : () => undefined;
  }
  collect();
}
