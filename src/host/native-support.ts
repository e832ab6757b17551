/**
 * The sockets of this machine: the addon's where it is there. Only composition roots import it: code that listens or
 * connects is given its sockets and does not choose them.
 */

import { runInNewContext } from "node:vm";
import type { ByteCodec } from "../connection/byte-codec.ts";
import type { Wire } from "../connection/wire-parts.ts";
import { loadAddon } from "../native/addon.ts";
import { nativeCodec, nativeWire } from "../native/native-sockets.ts";

/** The addon's sockets; undefined where it is missing. */
export function thisWire(): Wire | undefined {
  const loaded = loadAddon();
  return loaded.type === "loaded" ? nativeWire(loaded.addon) : undefined;
}

/** The addon's byte loops; undefined where it is missing. */
export function thisCodec(): ByteCodec | undefined {
  const loaded = loadAddon();
  return loaded.type === "loaded" ? nativeCodec(loaded.addon) : undefined;
}

/**
 * Keeps freed memory for the next chunk instead of giving it back each time, until it is quiet; for a program that is a
 * server.
 */
export function keepFreedMemory(): void {
  const loaded = loadAddon();
  if (loaded.type === "loaded") loaded.addon.keepFreedMemory(collectGarbage);
}

let collect: (() => void) | null = null;

/** V8 collects unused chunks only when the program allocates; an idle server would keep them for ever. */
function collectGarbage(): void {
  if (!collect) {
    // `gc` appears in new contexts only; nothing changes for the rest of the program.
    // Loaded here, because node:v8 loads all of node:stream, which would be a twentieth of a server's start.
    process.getBuiltinModule("node:v8").setFlagsFromString("--expose-gc");
    const found: unknown = runInNewContext("gc");
    collect = typeof found === "function" ? () => void found() : () => undefined;
  }
  collect();
}
