import type { KeptChildSide } from "../local/kept-child.ts";
import type { NativeAddon, NativeChild } from "./addon.ts";

/** What the addon records of a process that outlives this program. */
export function keptSide(native: NativeAddon, child: NativeChild): KeptChildSide {
  return {
    recordExit: (status) => native.recordExit(child, JSON.stringify(status)),
    recordClosed: () => native.recordClosed(child),
    noteSession: ({ hasLeft, attachments }) => native.noteSession(child, hasLeft, attachments),
    forget: () => native.forgetKept(child),
  };
}
