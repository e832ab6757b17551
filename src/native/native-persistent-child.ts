import type { PersistentChild } from "../local/persistent/persistent-child.ts";
import type { NativeAddon, NativeChild } from "./addon.ts";

/** Records the state of a persistent process in its segment. */
export function nativePersistentChild(native: NativeAddon, child: NativeChild): PersistentChild {
  return {
    recordExit: (status) => native.recordExit(child, JSON.stringify(status)),
    recordClosed: () => native.recordClosed(child),
    saveSession: ({ isReleased, attachments }) => native.saveSession(child, isReleased, attachments),
    remove: () => native.removePersistent(child),
  };
}
