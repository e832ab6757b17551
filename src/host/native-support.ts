/** The parts of the addon that a host uses. Only composition roots import this module: other code receives the parts. */

import { runInNewContext } from "node:vm";
import type { SocketProvider } from "../connection/socket-provider.ts";
import type { ListenerSupport } from "../exec/backend/listener-channel.ts";
import type { FileTrees } from "../files/file-trees.ts";
import type { NativeAddon } from "../native/addon.ts";
import { loadAddon } from "../native/load-addon.ts";
import { nativeListenerSupport } from "../native/native-listener-channel.ts";
import { nativeSocketProvider } from "../native/native-sockets.ts";
import { LANDLOCK_FILES_ABI, type LandlockSupport } from "../sandbox/landlock-rules.ts";

function findAddon(): NativeAddon | null {
  const loaded = loadAddon();
  return loaded.type === "loaded" ? loaded.addon : null;
}

/** Returns the addon's sockets; undefined if it is missing. */
export function nativeSocketsIfAvailable(): SocketProvider | undefined {
  const addon = findAddon();
  return addon ? nativeSocketProvider(addon) : undefined;
}

/** Returns the addon's support for managed networks; null if the addon or its program is missing. */
export function listenerSupportIfAvailable(): ListenerSupport | null {
  const addon = findAddon();
  return addon && nativeListenerSupport(addon);
}

/** Returns the version of Landlock; null if the kernel or the addon does not support it. */
export function landlockVersion(): number | null {
  return findAddon()?.landlockAbi() ?? null;
}

/** Returns the support for Landlock rules inside of sandboxes; null if kernel, addon or its program have none. */
export function landlockSupportIfAvailable(): LandlockSupport | null {
  const version = landlockVersion();
  return version === null || version < LANDLOCK_FILES_ABI ? null : listenerSupportIfAvailable();
}

/** Returns the addon's operations on directory trees; undefined if it is missing. Imports them on first use. */
export async function nativeFileTreesIfAvailable(): Promise<FileTrees | undefined> {
  const addon = findAddon();
  return addon ? (await import("../native/native-file-trees.ts")).nativeFileTrees(addon) : undefined;
}

/**
 * Hides memory, descriptors and the secrets in the environment of this process from other processes of the same user, such
 * as unsandboxed commands. Programs that it starts are not affected. No-op without the addon.
 */
export function makeProcessPrivate(): void {
  findAddon()?.makeProcessPrivate();
}

/** Retains freed memory for the next chunk until the server is idle. For a server only. */
export function retainFreedMemory(): void {
  findAddon()?.retainFreedMemory(collectGarbage);
}

/** Returns free memory to the system, after a garbage collection if `collects` is set, which takes tens of milliseconds. */
export function releaseFreeMemory(collects: boolean): void {
  if (collects) collectGarbage();
  findAddon()?.releaseFreeMemory();
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
