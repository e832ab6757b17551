import type { ListenerChannel, ListenerSupport } from "../exec/backend/listener-channel.ts";
import { toSpawnError } from "../local/spawn-error.ts";
import type { NativeAddon } from "./addon.ts";
import { nativeFileCandidates } from "./native-files.ts";

/** Returns the addon's support for managed networks; null if the program that runs inside the sandbox is missing. */
export function nativeListenerSupport(native: NativeAddon): ListenerSupport | null {
  const [program] = nativeFileCandidates("sandbox-listeners");
  return program === undefined ? null : { program, openChannel: () => openListenerChannel(native) };
}

function openListenerChannel(native: NativeAddon): ListenerChannel {
  const { promise: listeners, resolve } = Promise.withResolvers<readonly number[]>();
  const opened = native.openListenerChannel(resolve);
  if (typeof opened === "number") throw toSpawnError(opened, "socketpair", "sandbox-listeners");
  const [channel, sandboxEnd] = opened;
  return {
    sandboxEnd,
    listeners,
    close: () => {
      native.closeListenerChannel(channel);
      resolve([]);
    },
  };
}
